//! Writes the tables of an ingest, on one thread or on several.
//!
//! With one thread, entries are written directly to a table. With several, entries are collected in
//! batches. When there are as many batches as threads, the call that adds the next entry writes all
//! batches in parallel. So no thread outlives a call. A batch takes at most the share of a worker,
//! which bounds the size of its table.

use std::{mem, num::NonZero, sync::Arc, thread};

use sievedb_format::{InternalKey, SequenceNumber, Trailer};
use sievedb_sstable::TableOrigin;

use crate::{
    Error, Result,
    commit::{check_entry, stored_value},
    compaction::levels::LAST_LEVEL,
    filter_policy::FilterChoice,
    filters::choose_filter,
    keyspace_options::KeyspaceOptions,
    on_threads::on_threads,
    planted::PlantedBug,
    read::tree::Tree,
    resolve::put_at,
    store::{
        Store,
        entry_batch::EntryBatch,
        ingest_threads::{IngestThreads, threads_in},
    },
    table::{
        TableMeta, TablePlace, blob_output::BlobOutput, builder::TableBuilder,
        cache_room::WorkerShare, store::TableStore,
    },
};

/// Assumed number of entries when the filter is chosen.
const ENTRIES_EXPECTED: u64 = 1 << 20;
/// A longer part of a batch goes straight into a table.
const LONG_ENTRY_IN_BATCH: usize = 8;
/// The buffer of a value with an expiry keeps this length after a longer value.
const VALUE_BUFFER_BYTES: usize = 64 << 10;
/// Minimum share of a streamed value: more than its table and the pieces in memory take.
const STREAM_SHARE_BYTES_MIN: u64 = 4 << 20;

/// Properties of all tables of an ingest.
#[derive(Debug)]
pub(crate) struct IngestPlan {
    pub(crate) tree: Arc<Tree>,
    options: KeyspaceOptions,
    filter: FilterChoice,
    /// Stored with each entry. A repair without the manifest orders the tables by it, if neither
    /// the log nor a later table has the number that they got.
    provisional: SequenceNumber,
    /// Expiry of all values, by the store clock.
    expiry_ms: Option<u64>,
    /// The tables have few entries, and join others in a compaction of level 0.
    pub(crate) has_few_entries: bool,
    /// A planted bug.
    misplaces_blobs: bool,
}

/// Tables of an ingest, in key order.
#[derive(Debug)]
pub(crate) struct IngestTables {
    pub(crate) plan: IngestPlan,
    threads: IngestThreads,
    /// The tables of entries that were not collected.
    direct: TableRun,
    batch: Option<EntryBatch>,
    full: Vec<EntryBatch>,
    written: Vec<Arc<TableMeta>>,
    last_key: Vec<u8>,
    entries: u64,
    /// The error after which the ingest cannot continue.
    failed: Option<Error>,
}

impl Store {
    /// Begins to write tables for an ingest into `tree`.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], [`Error::KeyspaceDropped`], errors of the manifest.
    pub(crate) fn begin_ingest(&self, tree: &Arc<Tree>) -> Result<IngestTables> {
        self.versions.check_writable()?;
        tree.check()?;
        self.renew_manifest()?;
        let mut options = KeyspaceOptions::clone(&tree.options());
        if tree.view_seldom().version.runs().is_empty() {
            options = options.of_last_level();
        }
        let plan = IngestPlan {
            tree: Arc::clone(tree),
            options,
            filter: choose_filter(tree, |_| false, PLACE, ENTRIES_EXPECTED),
            provisional: self.writer.visible().max(1),
            expiry_ms: tree.default_expiry_ms(|| self.versions.clock().now_ms()),
            has_few_entries: false,
            misplaces_blobs: self.options.has_bug(PlantedBug::MisplaceBlobs),
        };
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if self.options.worker_threads == 0 { 1 } else { processors / 2 };
        let mut tables = IngestTables {
            plan,
            threads: IngestThreads::one(&self.ingest_threads),
            direct: TableRun::default(),
            batch: None,
            full: Vec::new(),
            written: Vec::new(),
            last_key: Vec::new(),
            entries: 0,
            failed: None,
        };
        tables.set_threads(self, threads);
        Ok(tables)
    }

    /// Appends an entry.
    ///
    /// # Errors
    ///
    /// [`Error::KeysNotAscending`], [`Error::KeyTooLong`], [`Error::ValueTooLong`]: the entry was
    /// not added. [`Error::Io`], [`Error::Closed`]: the ingest cannot continue, and each later call
    /// returns the error again.
    pub(crate) fn add_ingested(
        &self,
        tables: &mut IngestTables,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        tables.check()?;
        check_entry(key, value)?;
        if tables.entries > 0 && key <= &*tables.last_key {
            return Err(Error::KeysNotAscending { key: bytes::Bytes::copy_from_slice(key) });
        }
        let added = tables.add(&self.tables, key, value);
        tables.note(added)?;
        tables.last_key.clear();
        tables.last_key.extend_from_slice(key);
        tables.entries += 1;
        Ok(())
    }

    /// Ends the last table.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Closed`].
    pub(crate) fn end_ingested(&self, tables: &mut IngestTables) -> Result<()> {
        tables.check()?;
        let ended = tables.end(&self.tables);
        tables.note(ended)
    }

    /// Removes the files of an ingest that was not installed.
    pub(crate) fn discard_ingested(&self, tables: &mut IngestTables) {
        // An error may have left finished tables there.
        tables.written.append(&mut tables.direct.written);
        tables.direct = TableRun::default();
        for table in mem::take(&mut tables.written).iter().rev() {
            self.tables.discard(table, true);
        }
    }
}

impl IngestTables {
    /// Leaves files and memory to the parent, in a forked child: a drop may wait for a lock that a
    /// thread of the parent held.
    pub(crate) fn forget_files(&mut self) {
        mem::forget(mem::take(&mut self.direct));
        mem::forget((self.batch.take(), mem::take(&mut self.full)));
        mem::forget(mem::take(&mut self.written));
    }

    /// Returns the number of entries so far.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the length of the tables and blob files so far, in bytes. Entries that are not yet
    /// in a table count by their own length.
    pub(crate) fn bytes(&self) -> u64 {
        let batches = self.full.iter().chain(&self.batch).map(|batch| batch.bytes.len() as u64);
        let written = self.written.iter().map(|table| table.written_bytes());
        self.direct.open_bytes() + batches.sum::<u64>() + written.sum::<u64>()
    }

    /// Returns the tables that were written so far.
    pub(crate) fn written(&mut self) -> &mut Vec<Arc<TableMeta>> {
        debug_assert!(self.direct.open.is_none() && self.batch.is_none(), "the end is missing");
        &mut self.written
    }

    /// Returns the number of tables written so far.
    pub(crate) fn tables(&self) -> usize {
        self.written.len()
    }

    /// Sets the maximum number of tables that are written at the same time. Fewer are written if
    /// the memory budget has no room for them beside those of other ingests. One is written if
    /// values go to blob files, because its tables would be small.
    pub(crate) fn set_threads(&mut self, store: &Store, threads: usize) {
        let (budget, share) = (store.tables.memory.pool_bytes(), store.tables.writing_bytes_max());
        let has_blobs = self.plan.options.blob_value_bytes.is_some();
        self.threads.set(if has_blobs { 1 } else { threads }, threads_in(budget, share));
    }

    pub(crate) const fn threads(&self) -> usize {
        self.threads.get()
    }

    /// Returns the length at which a table ends, in bytes.
    pub(crate) const fn table_bytes(&self) -> u64 {
        self.plan.options.table_bytes
    }

    /// Adds `entries` of tables that were written apart to the count.
    pub(crate) const fn count(&mut self, entries: u64) {
        self.entries += entries;
    }

    /// Returns the error of an earlier call that failed.
    fn check(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Records an error after which the ingest cannot continue.
    fn note(&mut self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Adds the only entry. Its value of this length, in bytes, goes to a blob file whatever the
    /// options are, and never expires: see [`BlobOutput::add_from`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Closed`], those of `fill`: the ingest cannot continue.
    pub(crate) fn add_only(
        &mut self,
        tables: &TableStore,
        key: &[u8],
        value_bytes: u64,
        fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        debug_assert!(self.entries == 0, "the only entry");
        self.plan.options.blob_value_bytes = Some(value_bytes);
        self.plan.has_few_entries = true;
        let added = self.direct.add_from(tables, &self.plan, key, value_bytes, fill);
        self.note(added)?;
        self.entries = 1;
        Ok(())
    }

    fn add(&mut self, tables: &TableStore, key: &[u8], value: &[u8]) -> Result<()> {
        let batch_bytes_max = EntryBatch::bytes_max(&self.plan.options, tables);
        let bytes = EntryBatch::HEAD_BYTES + key.len() + value.len();
        let is_long = bytes > batch_bytes_max / LONG_ENTRY_IN_BATCH;
        if !is_long && self.threads() > 1 && self.direct.is_full(&self.plan) {
            self.direct.end_table(tables, &self.plan)?;
            self.written.append(&mut self.direct.written);
        }
        // An open table continues: its entries precede those of a batch.
        if self.threads() == 1 || is_long || self.direct.open.is_some() {
            self.write_batches(tables)?;
            self.direct.add(tables, &self.plan, key, value)?;
            self.written.append(&mut self.direct.written);
            return Ok(());
        }
        let is_full = |batch: &mut EntryBatch| {
            batch.bytes.len() + bytes > batch.within_share(batch_bytes_max)
        };
        self.full.extend(self.batch.take_if(is_full));
        // The number may have been lowered.
        if self.full.len() >= self.threads() {
            self.write_batches(tables)?;
        }
        self.batch.get_or_insert_with(|| EntryBatch::new(tables)).add(key, value, batch_bytes_max);
        Ok(())
    }

    fn end(&mut self, tables: &TableStore) -> Result<()> {
        self.write_batches(tables)?;
        self.direct.end_table(tables, &self.plan)?;
        self.written.append(&mut self.direct.written);
        Ok(())
    }

    /// Writes the entries of all batches into tables, in their order.
    fn write_batches(&mut self, tables: &TableStore) -> Result<()> {
        let mut batches = mem::take(&mut self.full);
        batches.extend(self.batch.take());
        if batches.is_empty() {
            return Ok(());
        }
        let plan = &self.plan;
        let runs = on_threads(self.threads(), &batches, |batch| {
            let mut run = TableRun::default();
            let mut add = |(key, value): (&[u8], &[u8])| run.add(tables, plan, key, value);
            let added = batch.entries().try_for_each(&mut add);
            let added = added.and_then(|()| run.end_table(tables, plan));
            // Also after an error: the caller discards them.
            Ok((mem::take(&mut run.written), added))
        })?;
        self.take(runs)
    }

    /// Takes the tables of runs that follow each other.
    pub(crate) fn take(&mut self, runs: Vec<(Vec<Arc<TableMeta>>, Result<()>)>) -> Result<()> {
        let (written, results): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        self.written.extend(written.into_iter().flatten());
        results.into_iter().collect()
    }
}

/// The provisional place of all tables.
const PLACE: TablePlace = TablePlace { level: LAST_LEVEL, run: 0 };

/// Writes ascending entries into tables that follow each other.
#[derive(Debug, Default)]
pub(crate) struct TableRun {
    open: Option<OpenTable>,
    pub(crate) written: Vec<Arc<TableMeta>>,
    /// The last stored value that has an expiry.
    value: Vec<u8>,
}

#[derive(Debug)]
struct OpenTable {
    table: TableBuilder,
    blobs: BlobOutput,
    share: Arc<WorkerShare>,
}

impl OpenTable {
    fn new(tables: &TableStore, plan: &IngestPlan, share: Arc<WorkerShare>) -> Result<Self> {
        let blobs = BlobOutput::new(tables, &plan.options, &share, plan.misplaces_blobs);
        let table = tables.create(&plan.options, plan.filter, &share, 0, None)?;
        Ok(Self { table, blobs, share })
    }
}

impl TableRun {
    /// Adds an entry behind all before.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Closed`]: the run is unusable, but keeps its earlier tables.
    pub(crate) fn add(
        &mut self,
        tables: &TableStore,
        plan: &IngestPlan,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        if self.is_full(plan) {
            self.end_table(tables, plan)?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(OpenTable::new(tables, plan, tables.worker_share())?),
        };
        let (kind, value) = stored_value(plan.expiry_ms, value, &mut self.value);
        let key = InternalKey::new(key, Trailer::new(plan.provisional, kind));
        let added = open.blobs.add(tables, &mut open.table, key, value);
        self.value.clear();
        self.value.shrink_to(VALUE_BUFFER_BYTES);
        let is_beyond = open.share.is_beyond();
        // Jobs may wait for this share, while the caller waits for them or keeps a failed ingest.
        added.inspect_err(|_| self.open = None)?;
        if is_beyond {
            self.end_table(tables, plan)?;
        }
        Ok(())
    }

    fn is_full(&self, plan: &IngestPlan) -> bool {
        let table_bytes = plan.options.table_bytes;
        let is_full = |it: &OpenTable| it.table.bytes() >= table_bytes || it.table.has_its_share();
        self.open.as_ref().is_some_and(is_full)
    }

    /// Adds the first entry, with a value in a blob file: see [`BlobOutput::add_from`].
    fn add_from(
        &mut self,
        tables: &TableStore,
        plan: &IngestPlan,
        key: &[u8],
        value_bytes: u64,
        fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        // Never beyond it: flushes would wait for `fill`, and `fill` may wait for a flush.
        let share = tables.share_of(STREAM_SHARE_BYTES_MIN);
        let open = self.open.insert(OpenTable::new(tables, plan, share)?);
        let key = InternalKey::new(key, put_at(plan.provisional));
        open.blobs.add_from(tables, &mut open.table, key, value_bytes, fill)
    }

    /// Ends the table that was begun, if any.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub(crate) fn end_table(&mut self, tables: &TableStore, plan: &IngestPlan) -> Result<()> {
        let Some(OpenTable { table, mut blobs, share }) = self.open.take() else { return Ok(()) };
        let (blob_files, new_blobs, depth) = blobs.end_table(tables)?;
        let origin = TableOrigin { blob_files, is_ingested: true, ..plan.tree.origin() };
        self.written.push(table.finish(PLACE, origin, depth)?);
        new_blobs.finish();
        drop((blobs, share));
        Ok(())
    }

    fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.table.bytes() + open.blobs.bytes())
    }
}

#[cfg(all(test, target_os = "linux", not(any(miri, feature = "shuttle"))))]
mod tests;
