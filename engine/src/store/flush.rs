//! Flushes: memtables become tables of level 0, and old log segments obsolete.

use std::{collections::BTreeSet, sync::Arc};

use sievedb_format::SequenceNumber;
use sievedb_sstable::{Completed, CursorOptions, TableOrigin};

use crate::{
    Result,
    compaction::readers::Readers,
    compaction::{borders::Borders, ranges::RangeFragments, retain::RetainStream},
    filter_policy::FilterChoice,
    filters::choose_filter,
    fold::OperatorCell,
    iter::merge::MergeCursor,
    keyspace_options::KeyspaceOptions,
    listener::Event,
    memory::MemoryUse,
    planted::PlantedBug,
    read::source::ScanOptions,
    read::source::Source,
    read::tree::Tree,
    read::view::{KeptView, PlacedMemtable},
    store::Store,
    store::logged_values::FlushedValues,
    store::table_output::{NewTables, write_tables},
    store::versions::change::{Change, Flushed},
    store::writer::stall::Awaited,
    table::TableMeta,
    table::TablePlace,
    table::cache_room::WorkerShare,
    table::store::TableStore,
    version::Version,
};

/// Writes memtables into one sorted run of level 0, without the versions that no reader needs.
///
/// `origin` is that of the last table. `choose` returns the filter for a place and a number of
/// entries. `readers` are those of the entries, listed after all entries were visible. `clock_ms`
/// is the store clock, read after all entries were placed. `operator` applies merge operands.
/// `older` are the tables with older versions. `flushed_values` are in blob files already. Buffers
/// are part of `share`.
///
/// # Errors
///
/// [`Error::Io`](crate::Error::Io), [`Error::Closed`](crate::Error::Closed) if the store is being
/// closed. Files written before the error are orphans.
pub(crate) fn write_memtables(
    (tables, share): (&TableStore, &Arc<WorkerShare>),
    (origin, options, clock_ms): (TableOrigin, &KeyspaceOptions, u64),
    choose: impl FnOnce(TablePlace, u64) -> FilterChoice,
    memtables: &[Arc<PlacedMemtable>],
    readers: Readers,
    operator: OperatorCell,
    (older, flushed_values): (&Version, &FlushedValues<'_>),
) -> Result<Vec<Arc<TableMeta>>> {
    let folder = tables.folder.as_path().into();
    let scan = ScanOptions::once(CursorOptions::whole_table());
    let cursors = memtables.iter().zip(0..);
    let cursors =
        cursors.map(|(placed, rank)| Source::memtable(placed, rank, &folder, &scan)).collect();
    let merged = MergeCursor::new(cursors, 0);
    let lists = memtables.iter().flat_map(|placed| placed.memtable.range_tombstones().lists());
    let tombstones: Vec<_> =
        lists.flat_map(|list| list.iter().cloned().collect::<Vec<_>>()).collect();
    let ranges =
        RangeFragments::new(&tombstones, readers.stripes(), |bounds| !older.overlaps(bounds));
    let is_bottom = |key: &[u8]| older.runs().iter().all(|run| run.find(key).is_none());
    let kept = RetainStream::new(merged, readers, is_bottom, || tables.is_closing());
    let mut kept = kept.with_ranges(ranges).folding(operator).charging(share);
    // Numbers of files ascend, so a later flush makes a newer run.
    let place = TablePlace { level: 0, run: tables.new_file_id() };
    let entries = memtables.iter().map(|placed| placed.memtable.entries() as u64).sum();
    let (filter, rewritten_blobs) = (choose(place, entries), BTreeSet::new());
    let new = NewTables {
        options,
        filter,
        entries_max: entries,
        table_entries_max: entries,
        place,
        origin,
        rewritten_blobs,
        written_ms: Some(clock_ms),
        flushed_values: Some(flushed_values),
        misplaces_blobs: false,
    };
    write_tables(tables, &new, &mut kept, share, Borders::none(options.table_bytes))
}

impl Store {
    /// Freezes the memtables of `trees` and waits until tables have their entries.
    ///
    /// # Errors
    ///
    /// The error of the flush.
    pub(crate) fn flush_trees(&self, trees: &[Arc<Tree>]) -> Result<()> {
        self.versions.check_writable()?;
        let last_placed = {
            let placement = self.writer.placement();
            for tree in trees {
                tree.freeze();
            }
            placement.last_placed()
        };
        self.scheduler.retry_flushes();
        let is_done = |tree: &Arc<Tree>| {
            tree.is_dropped() || tree.first_unflushed().is_none_or(|first| first > last_placed)
        };
        // A tree that is done stays done.
        let mut left = trees;
        self.wait_for(Awaited::Flushes, |_| {
            while let Some((_, rest)) = left.split_first().filter(|(tree, _)| is_done(tree)) {
                left = rest;
            }
            left.is_empty()
        })
    }

    /// Flushes the replayed memtables if they exceed their memory limit, as after a cut of the
    /// budget. The log holds their entries, so the next write reports a failure.
    pub(crate) fn flush_excess(&self) {
        let memory = &self.tables.memory;
        if memory.memtable_bytes() > memory.limit(MemoryUse::Memtables) {
            let trees: Vec<_> = self.versions.trees().values().cloned().collect();
            let _ = self.flush_trees(&trees);
        }
    }

    /// Writes the frozen memtables of `tree` into tables, one sorted run for all. Buffers are part
    /// of `share`.
    pub(crate) fn flush_frozen(&self, tree: &Arc<Tree>, share: &Arc<WorkerShare>) -> Result<()> {
        let KeptView { frozen, version, cleared, .. } = tree.kept_view();
        let Some(newest) = frozen.first() else { return Ok(()) };
        // Also before a flush that may fail: the unlinks may free the space for the next one.
        self.tables.obsolete_files.retry();
        self.renew_manifest()?;
        let placed = newest.last_sequence();
        // Then all inserts are done, and the memtables have what readers see.
        self.writer.publish().wait_visible(placed);
        // Not `placed`: the record of a write that failed may still be the end of the log. If
        // recovery replays it, it must replay it in every keyspace of its batch.
        let inserted = frozen.iter().map(|frozen| frozen.last_inserted()).max().unwrap_or(0);
        // Before the sync of the log, which makes them durable too.
        let value_files = self.values.end(tree.id, &frozen);
        if !self.options.has_bug(PlantedBug::InstallFlushBeforeLogSync) {
            // Otherwise the flushed half of a batch over two keyspaces could survive a crash.
            // Before the tables are written: a full disk fails the log first.
            self.writer.log().sync_to(self, inserted)?;
        }
        let flushed_values = self.flushed_values(&frozen, &value_files)?;
        let first = frozen.last().and_then(|oldest| oldest.first_sequence()).unwrap_or(0);
        // Before the list of snapshots: one that is missing there has a later clock.
        let clock_ms = self.versions.clock().now_ms();
        let readers = self
            .versions
            .snapshots()
            .readers_between(first, placed, clock_ms, || self.cut_history(tree));
        let completed = Completed { flushed: inserted, replaced: Vec::new() };
        let origin = TableOrigin { completed: Some(completed), ..tree.origin() };
        let tables = write_memtables(
            (&self.tables, share),
            (origin, &tree.kept_options(), clock_ms),
            |place, entries| choose_filter(tree, |_| false, place, entries),
            &frozen,
            readers,
            tree.operator().clone(),
            (&version, &flushed_values),
        )?;
        drop(flushed_values);
        let memtable_bytes =
            frozen.iter().map(|frozen| frozen.memtable.memory_bytes() as u64).sum();
        // The view keeps them until the tables replace them.
        drop((frozen, version));
        let bytes = tables.iter().map(|table| table.written_bytes()).sum();
        let flushed = Some(Flushed { placed, inserted });
        let change = Change { added: tables, flushed, cleared, ..Change::default() };
        self.install(tree, &change)?;
        // Not before: if the keyspace was dropped since, the log no longer has them.
        drop(value_files);
        self.scheduler.count(|done| {
            done.flushes += 1;
            done.flush_bytes_written += bytes;
        });
        self.tables.cache_room.note_flush(memtable_bytes);
        self.notify(&Event::Flushed { keyspace: tree.name(), bytes });
        self.report_failed_merge(tree);
        self.drop_old_logs()
    }

    /// Reports the first merge operands of `tree` that a flush or a compaction could not apply.
    pub(crate) fn report_failed_merge(&self, tree: &Tree) {
        let failed = tree.operator().get().and_then(|folder| folder.take_unreported());
        if let Some(error) = failed {
            self.notify(&Event::MergeFailed { keyspace: tree.name(), error });
        }
    }

    /// Drops the log segments whose entries are all in tables.
    pub(crate) fn drop_old_logs(&self) -> Result<()> {
        let needed = self.first_needed();
        match self.writer.log().leave_flushed(self, needed) {
            // Without room for a new segment the old ones are dropped all the same.
            Err(error) if error.is_retryable() => {}
            left => left?,
        }
        debug_assert!(needed <= self.writer.placement().last_placed() + 1, "needed by no write");
        let Some(floor) = self.writer.log().floor(needed) else { return Ok(()) };
        self.leave_logs_below(floor, None)
    }

    /// Drops the log if tables have all its entries, after the last write. Returns whether it did.
    pub(crate) fn drop_whole_log(&self) -> Result<bool> {
        let last_placed = self.writer.placement().last_placed();
        if self.first_needed() <= last_placed {
            return Ok(false);
        }
        if self.writer.log().size().segments > 0 {
            if self.is_retaining() {
                self.writer.log().close(self)?;
            }
            // The log no longer has the numbers that were given out.
            self.leave_logs_below(self.tables.new_file_id(), Some(last_placed))?;
        }
        Ok(true)
    }

    /// Returns the first sequence number that requires the log: no table has it.
    fn first_needed(&self) -> SequenceNumber {
        let placement = self.writer.placement();
        let trees = self.versions.trees();
        let unflushed = trees.values().filter_map(|tree| tree.first_unflushed());
        let first = unflushed.chain(placement.keyspace_change()).min();
        first.unwrap_or(placement.last_placed() + 1)
    }

    /// Freezes the memtables that pin the oldest segment of a log that is too long: an idle
    /// keyspace must not keep all of it.
    pub(crate) fn relieve_log(&self) {
        let memtable_bytes_max = self.tables.memory.limit(MemoryUse::Memtables);
        if self.writer.log().size().bytes <= self.options.log.bytes_max(memtable_bytes_max) {
            return;
        }
        let Some(last) = self.writer.log().oldest_finished() else { return };
        let _placement = self.writer.placement();
        for tree in self.versions.trees().values() {
            if tree.first_unflushed().is_some_and(|first| first <= last) {
                tree.freeze();
            }
        }
    }
}
