//! Bulk load of sorted entries.

use std::{fmt, io::Read, path::PathBuf};

#[cfg(doc)]
use crate::Error;
use crate::{Keyspace, Result, handle_counts::HandleKind, store::ingest_tables::IngestTables};

/// A bulk load of ascending entries into a keyspace, returned by [`Keyspace::ingestion`]. Entries
/// are written directly to tables, without log and memtables, and become visible atomically.
/// RocksDB: `SstFileWriter` and `IngestExternalFile`.
///
/// Calls that add entries write tables on several threads: see [`threads`](Self::threads).
///
/// A drop without [`finish`](Self::finish) removes the tables and changes nothing. After a crash,
/// the next open removes the tables.
#[must_use = "an ingestion changes nothing until it is finished"]
pub struct Ingestion {
    tables: IngestTables,
    keyspace: Keyspace,
}

/// Result of a finished [`Ingestion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// Sequence number of all entries, for [`Db::snapshot_at`](crate::Db::snapshot_at). Without
    /// entries, the sequence number of the newest visible write.
    pub sequence: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of new tables.
    pub tables: usize,
    /// Length of the new tables and blob files, in bytes.
    pub bytes: u64,
}

impl Keyspace {
    pub(crate) fn begin_ingestion(&self) -> Result<Ingestion> {
        let store = self.handle().accept()?;
        let tables = store.begin_ingest(self.tree())?;
        Ok(Ingestion { tables, keyspace: self.of_kind(HandleKind::Keyspace) })
    }

    pub(crate) fn ingest_paths(&self, paths: &[PathBuf]) -> Result<Ingested> {
        let mut ingestion = self.begin_ingestion()?;
        self.handle().accept()?.add_ingested_files(&mut ingestion.tables, paths)?;
        ingestion.finish()
    }
}

impl Ingestion {
    /// Sets the maximum number of tables that are written at the same time, one per thread.
    ///
    /// From 1 to 64; values outside are clamped. Default: half of the processors, at least 1;
    /// without [worker threads](crate::Options::worker_threads), 1. Each thread beyond the first
    /// takes the memory of two worker threads. Fewer threads run if those of all ingestions of the
    /// store exceed half of the memory budget. With
    /// [`blob_value_bytes`](crate::KeyspaceOptions::blob_value_bytes), one thread runs. With
    /// several threads, tables are smaller: at most half of a worker's memory for writing.
    pub fn threads(mut self, threads: usize) -> Self {
        self.tables.set_threads(self.keyspace.open_store().store(), threads);
        self
    }

    /// Adds an entry, whose key must be above all earlier keys. The value expires after the
    /// [default TTL](crate::KeyspaceOptions::default_ttl) of the keyspace, if it has one, counted
    /// from the start of the ingestion.
    ///
    /// # Errors
    ///
    /// * The entry was not added, and the ingestion can continue: [`Error::KeysNotAscending`],
    ///   [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    /// * The ingestion must be dropped, and later calls return the error again: [`Error::Io`], also
    ///   of a full disk; [`Error::Closed`].
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let store = self.keyspace.handle().accept()?;
        store.add_ingested(&mut self.tables, key.as_ref(), value.as_ref())
    }

    /// Adds the only entry, whose value of this length goes to a blob file.
    pub(super) fn add_streamed(
        &mut self,
        key: &[u8],
        reader: &mut impl Read,
        value_bytes: u64,
    ) -> Result<()> {
        let store = self.keyspace.handle().accept()?;
        store.add_streamed(&mut self.tables, key, reader, value_bytes)
    }

    /// Returns the number of entries added so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.tables.entries()
    }

    /// Returns the approximate length of the tables so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.bytes()
    }

    /// Makes all entries durable and visible atomically. Costs a flush of the keyspace, a synced
    /// write to the log and one to the manifest. Other writes to the keyspace wait for these three
    /// steps.
    ///
    /// # Errors
    ///
    /// * Nothing was changed: [`Error::KeyspaceDropped`], [`Error::Closed`], errors of the flush.
    /// * No entry is visible, but all may reappear when the store is reopened: [`Error::Io`],
    ///   [`Error::ReadOnly`].
    pub fn finish(mut self) -> Result<Ingested> {
        let store = self.keyspace.handle().accept()?;
        store.end_ingested(&mut self.tables)?;
        let (entries, bytes, tables) = (self.entries(), self.bytes(), self.tables.tables());
        let sequence = store.install_ingested(&mut self.tables)?;
        Ok(Ingested { sequence, entries, tables, bytes })
    }
}

impl Drop for Ingestion {
    fn drop(&mut self) {
        let store = self.keyspace.open_store().store();
        if store.is_forked() {
            return self.tables.forget_files();
        }
        store.discard_ingested(&mut self.tables);
    }
}

impl fmt::Debug for Ingestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyspace = self.keyspace.name();
        let (entries, bytes) = (self.entries(), self.bytes());
        let mut debug = f.debug_struct("Ingestion");
        debug.field("keyspace", &keyspace).field("entries", &entries).field("bytes", &bytes);
        debug.finish_non_exhaustive()
    }
}

/// Implements the bulk load of a handle. `field` names its keyspace, if it is none itself.
macro_rules! ingest_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Bulk load of this keyspace; on a [`Db`](crate::Db), of the default keyspace.
        impl $handle {
            /// Stores all `entries` in this keyspace, on a [`Db`](crate::Db) in the default
            /// keyspace. Their keys must ascend, without duplicates. Atomic, and durable at return.
            /// Cheaper than single inserts: entries are written directly to tables, on the deepest
            /// level above all older entries of their keys.
            ///
            /// The entries replace every value written before the call ends. Earlier snapshots do
            /// not see them. Reads and writes continue during the call. At its end the call flushes
            /// the keyspace. During this flush, writes to this keyspace wait, and `try_insert` and
            /// `try_commit` fail. If compactions are behind, the call waits for them as writes do.
            ///
            /// A [default TTL](crate::KeyspaceOptions::default_ttl) counts from the start of the
            /// ingest. If that takes longer, the values have expired when it ends.
            ///
            /// The log does not contain ingested entries. This affects its readers:
            ///
            /// * [`Db::changes`](crate::Db::changes) returns
            ///   [`ChangeKind::Ingest`](crate::changes::ChangeKind::Ingest) instead of the entries.
            /// * [Backups](crate::BackupSet) have the entries. But a backup made before an ingest
            ///   cannot be restored to a point after it: [`Error::IngestNotArchived`]. Make a
            ///   backup after an ingest.
            /// * A [follower](crate::Options::follow) waits up to 1 s for the tables, and may show
            ///   later writes without them afterwards.
            /// * A full disk or a crash at the end of the call may leave the record of an ingest
            ///   without its tables. For these readers it is an ingest.
            /// * A [repair](crate::Options::repair) of a store without a manifest may order
            ///   ingested entries by the start of the call, if the log was dropped since. It may
            ///   also recover entries of an interrupted ingest.
            ///
            /// To handle errors of single entries, or to show progress, use
            /// [`ingestion`](Self::ingestion).
            ///
            /// # Errors
            ///
            /// * Nothing was changed: [`Error::KeysNotAscending`], [`Error::KeyTooLong`],
            ///   [`Error::ValueTooLong`], [`Error::KeyspaceDropped`], [`Error::ReadOnly`].
            /// * As [`Ingestion::finish`](crate::Ingestion::finish).
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path())?;
            /// let ingested = db.ingest((0..1000_u32).map(|n| (n.to_be_bytes(), "value")))?;
            /// assert_eq!(ingested.entries, 1000);
            /// assert_eq!(db.get(7_u32.to_be_bytes())?.as_deref(), Some(&b"value"[..]));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// [`Error::KeysNotAscending`]: crate::Error::KeysNotAscending
            /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
            /// [`Error::ValueTooLong`]: crate::Error::ValueTooLong
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            /// [`Error::ReadOnly`]: crate::Error::ReadOnly
            /// [`Error::IngestNotArchived`]: crate::Error::IngestNotArchived
            pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
                &self,
                entries: impl IntoIterator<Item = (K, V)>,
            ) -> $crate::Result<$crate::Ingested> {
                let mut ingestion = self.ingestion()?;
                for (key, value) in entries {
                    ingestion.insert(key, value)?;
                }
                ingestion.finish()
            }

            /// Begins a bulk load of this keyspace, on a [`Db`](crate::Db) of the default keyspace,
            /// to which the caller adds single entries: see [`ingest`](Self::ingest).
            ///
            /// # Errors
            ///
            /// [`Error::KeyspaceDropped`], [`Error::ReadOnly`], [`Error::Io`].
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// use sievedb::{Db, Error};
            ///
            /// let db = Db::open(dir.path())?;
            /// let mut ingestion = db.ingestion()?;
            /// ingestion.insert("a", "1")?;
            /// let refused = ingestion.insert("a", "2");
            /// assert!(matches!(refused, Err(Error::KeysNotAscending { .. })));
            /// println!("{} entries, {} bytes", ingestion.entries(), ingestion.bytes());
            /// ingestion.finish()?;
            /// assert_eq!(db.get("a")?.as_deref(), Some(&b"1"[..]));
            /// # Ok::<(), Error>(())
            /// ```
            ///
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            /// [`Error::ReadOnly`]: crate::Error::ReadOnly
            /// [`Error::Io`]: crate::Error::Io
            pub fn ingestion(&self) -> $crate::Result<$crate::Ingestion> {
                self$(.$field)?.begin_ingestion()
            }

            /// Stores all entries of table files that [`TableWriter`](crate::TableWriter) wrote in
            /// this keyspace; on a [`Db`](crate::Db), in the default keyspace. Atomic, and durable
            /// at return, as [`ingest`](Self::ingest).
            ///
            /// Copies the entries: the files are not changed, and may be removed afterwards. Reads
            /// each file once and verifies every checksum before any entry becomes visible. Several
            /// threads copy: see [`Ingestion::threads`](crate::Ingestion::threads). Each thread
            /// holds a block of a file, stored and decompressed, in addition to the memory budget.
            /// A block is as long as its longest value.
            ///
            /// The files may be in any order, but their key ranges must not overlap. Encrypted
            /// files are not accepted. Tables of other stores are accepted if they contain only
            /// values, one for each key.
            ///
            /// # Errors
            ///
            /// * Nothing was changed: [`Error::NotIngestible`] for files that overlap, or have
            ///   entries other than values or too long; [`Error::NeedsFeature`] for files
            ///   compressed by zstd, in a build without the feature `zstd`; [`Error::Corrupt`],
            ///   [`Error::Io`].
            /// * As [`ingestion`](Self::ingestion) and
            ///   [`Ingestion::finish`](crate::Ingestion::finish).
            ///
            /// [`Error::NotIngestible`]: crate::Error::NotIngestible
            /// [`Error::NeedsFeature`]: crate::Error::NeedsFeature
            /// [`Error::Corrupt`]: crate::Error::Corrupt
            /// [`Error::Io`]: crate::Error::Io
            pub fn ingest_files<P: AsRef<std::path::Path>>(
                &self,
                paths: impl IntoIterator<Item = P>,
            ) -> $crate::Result<$crate::Ingested> {
                let paths: Vec<_> =
                    paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
                self$(.$field)?.ingest_paths(&paths)
            }

            /// Begins a bulk load of this keyspace, on a [`Db`](crate::Db) of the default keyspace,
            /// with entries in any order, by an external sort. The directory `dir` for its files
            /// must be empty or missing, and outside of the store.
            ///
            /// `memory_bytes` is the length of the sort buffer, in addition to the memory budget;
            /// less than 64 KiB counts as 64 KiB. The buffer grows by doubling: while it fills for
            /// the first time, it takes up to twice as much memory. A full buffer becomes a sorted
            /// run. Up to 32 runs of one size are merged at once, at the end up to 31 of each size.
            /// Each takes a read buffer of 256 KiB, or twice its longest value if that is more.
            /// Entries that fit into the sort buffer use no file.
            ///
            /// # Errors
            ///
            /// [`Error::KeyspaceDropped`], [`Error::ReadOnly`], [`Error::Io`],
            /// [`Error::DirectoryNotEmpty`].
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// let db = sievedb::Db::open(dir.path().join("db"))?;
            /// let mut ingestion = db.unsorted_ingestion(dir.path().join("runs"), 64 << 20)?;
            /// for key in ["carl", "anna", "bert"] {
            ///     ingestion.insert(key, "value")?;
            /// }
            /// assert_eq!(ingestion.finish()?.entries, 3);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            /// [`Error::ReadOnly`]: crate::Error::ReadOnly
            /// [`Error::Io`]: crate::Error::Io
            /// [`Error::DirectoryNotEmpty`]: crate::Error::DirectoryNotEmpty
            pub fn unsorted_ingestion(
                &self,
                dir: impl AsRef<std::path::Path>,
                memory_bytes: usize,
            ) -> $crate::Result<$crate::UnsortedIngestion> {
                self$(.$field)?.begin_unsorted(dir.as_ref(), memory_bytes)
            }
        }
    };
}

pub(crate) use ingest_methods;

ingest_methods!(Keyspace);
