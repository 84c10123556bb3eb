//! Bulk load of entries in any order.

use std::{fmt, path::Path};

use crate::{Error, Ingested, Ingestion, Keyspace, Result, commit::check_entry, sorter::Sorter};

/// Entries between two calls of `on_progress`.
const PROGRESS_ENTRIES: u64 = 1 << 16;

/// A bulk load of entries in any order, returned by [`Keyspace::unsorted_ingestion`]. An external
/// sort orders the entries outside of the store, then they are [ingested](crate::Keyspace::ingest).
///
/// Each entry is written about twice: into a sorted run, and into a table of the store. If a key
/// has several values, the last one is stored. A drop without [`finish`](Self::finish) changes
/// nothing, and removes the runs. After a crash the runs remain in their directory.
#[must_use = "an ingestion changes nothing until it is finished"]
pub struct UnsortedIngestion {
    /// Declared before the ingestion: its files are removed first.
    sorter: Sorter,
    ingestion: Ingestion,
    entries: u64,
    /// The error after which the ingestion cannot continue: sorted runs may be lost.
    failed: Option<Error>,
}

impl Keyspace {
    pub(crate) fn begin_unsorted(
        &self,
        dir: &Path,
        memory_bytes: usize,
    ) -> Result<UnsortedIngestion> {
        let ingestion = self.begin_ingestion()?;
        // Encrypted, if the store is.
        let fs = self.handle().accept()?.target.logical();
        let sorter = Sorter::new(fs, dir, memory_bytes)?;
        Ok(UnsortedIngestion { sorter, ingestion, entries: 0, failed: None })
    }
}

impl UnsortedIngestion {
    /// Sets the maximum number of tables that are written at the same time: see
    /// [`Ingestion::threads`].
    pub fn threads(mut self, threads: usize) -> Self {
        self.ingestion = self.ingestion.threads(threads);
        self
    }

    /// Adds an entry. Keys may be in any order.
    ///
    /// # Errors
    ///
    /// * The entry was not added, and the ingestion can continue: [`Error::KeyTooLong`],
    ///   [`Error::ValueTooLong`].
    /// * The ingestion cannot continue: [`Error::Io`], also of a full disk; [`Error::Corrupt`] of a
    ///   sorted run. Each later call returns the error again.
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.check()?;
        check_entry(key, value)?;
        let added = self.sorter.add(key, value);
        added.inspect_err(|error| self.failed = Some(error.clone()))?;
        self.entries += 1;
        Ok(())
    }

    /// Checks that no earlier call failed.
    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns the number of entries added so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the length of all sorted runs written so far, merged ones included, in bytes.
    #[must_use]
    pub fn run_bytes(&self) -> u64 {
        self.sorter.run_bytes()
    }

    /// Merges the sorted runs into tables, and makes all entries durable and visible at once.
    ///
    /// # Errors
    ///
    /// As [`Ingestion::insert`] and [`Ingestion::finish`]; [`Error::Corrupt`] of a sorted run; the
    /// error of an earlier call.
    pub fn finish(self) -> Result<Ingested> {
        self.finish_with(|_| ())
    }

    /// Finishes as [`finish`](Self::finish) does. Calls `on_progress` with the number of entries
    /// merged so far, every 65,536 entries.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_with(self, mut on_progress: impl FnMut(u64)) -> Result<Ingested> {
        self.check()?;
        let Self { sorter, mut ingestion, .. } = self;
        sorter.finish(|key, value| {
            ingestion.insert(key, value)?;
            if ingestion.entries().is_multiple_of(PROGRESS_ENTRIES) {
                on_progress(ingestion.entries());
            }
            Ok(())
        })?;
        ingestion.finish()
    }
}

impl fmt::Debug for UnsortedIngestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UnsortedIngestion");
        debug.field("ingestion", &self.ingestion).field("entries", &self.entries);
        debug.finish_non_exhaustive()
    }
}
