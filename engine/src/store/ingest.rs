//! Ingests tables: writes them beside the history, then adds all of them by one edit.
//!
//! The [tables](super::ingest_tables) store a provisional sequence number. The final number, the
//! same for all entries, is placed once the tables are complete. The manifest stores it. While it
//! is in flight, these steps run in order:
//!
//! 1. The log has a record at this number, synced with everything before it. So no crash keeps the
//!    tables and loses older writes.
//! 2. One edit of the manifest adds all tables.
//! 3. The view of the keyspace gets the tables and an empty memtable. A reader of the earlier view
//!    sees no write after the ingest.
//! 4. The number becomes visible.
//!
//! Writes to the keyspace wait for these steps, and for a flush before: entries of memtables are
//! older than the ingested ones. No compaction of the keyspace begins before the number is visible:
//! it would miss the snapshots taken until then. Running compactions keep their key ranges.

use std::{mem, slice, sync::Arc};

use sievedb_format::{SequenceNumber, TableBounds};

use super::ingest_tables::IngestTables;
use crate::{
    Durability, Result,
    commit::{Always, PlacedWrite, Write},
    compaction::{choice::Compaction, levels::LAST_LEVEL},
    compaction_style::CompactionStyle,
    listener::Event,
    manifest::VersionEdit,
    planted::PlantedBug,
    read::tree::Tree,
    store::{Store, versions::change::Change, writer::stall::OnStall},
    table::{LiveTable, TableMeta},
    version::Version,
};

impl Store {
    /// Makes the ended tables durable and visible. Returns their sequence number, or the newest
    /// visible one if there are no entries.
    ///
    /// # Errors
    ///
    /// Nothing is visible. After [`Error::Io`] the entries may be found when the store is reopened,
    /// all or none.
    pub(crate) fn install_ingested(&self, tables: &mut IngestTables) -> Result<SequenceNumber> {
        let (tree, bytes, entries) =
            (Arc::clone(&tables.plan.tree), tables.bytes(), tables.entries());
        let to_level0 = tables.plan.has_few_entries;
        let written = tables.written();
        if written.is_empty() {
            return Ok(self.writer.visible());
        }
        // The tables may be a run of level 0.
        self.throttle(&Write::to(&tree))?;
        // Flushes most entries before writes wait.
        self.flush_trees(slice::from_ref(&tree))?;
        // No clear may remove the tables.
        let change = self.lock_keyspaces();
        tree.check()?;
        let ingesting = Ingesting::begin(self, &tree);
        self.flush_trees(slice::from_ref(&tree))?;
        let running = if to_level0 { None } else { Some(&*ingesting.running) };
        self.place_tables(&tree, running, written);
        let sequence = self.install_placed(&tree, &mem::take(written))?;
        drop(ingesting);
        drop(change);
        let keyspace = tree.name();
        self.notify(&Event::Ingested { keyspace, entries, bytes });
        self.run_inline();
        Ok(sequence)
    }

    /// Sets level and run of each table: by [`level_for`] beside `running` compactions, or level 0.
    fn place_tables(
        &self,
        tree: &Tree,
        running: Option<&[Compaction]>,
        written: &mut [Arc<TableMeta>],
    ) {
        let version = tree.kept_view().version;
        let style = tree.options().compaction_style;
        let written_ms = self.versions.clock().now_ms();
        let mut newest_run = None;
        for table in written {
            let level = match (style, running) {
                // The newest tables are deleted last.
                (CompactionStyle::Fifo(_), _) | (_, None) => 0,
                (_, Some(running)) => level_for(&version, running, &table.bounds),
            };
            let mut new_run = || *newest_run.get_or_insert_with(|| self.tables.new_file_id());
            let run = if level == 0 { new_run() } else { 0 };
            let table = Arc::make_mut(table);
            (table.level, table.run) = (level, run);
            table.written_ms = Some(written_ms);
        }
    }

    /// Installs tables that have their places. They are obsolete after an error, unless the
    /// manifest may name them.
    fn install_placed(
        &self,
        tree: &Arc<Tree>,
        written: &[Arc<TableMeta>],
    ) -> Result<SequenceNumber> {
        let opened = self.open_new(tree, written)?;
        let next =
            |old: &Version, opened: &[Arc<LiveTable>]| Change::default().next_version(old, opened);
        // Filters are in memory before lookups see their tables, if there is room.
        let fits =
            self.filters.admit(self, tree, &next(&tree.kept_view().version, &opened), &opened);
        let logged = self.log_ingest(tree, written);
        let placed = logged.inspect_err(|_| opened.iter().for_each(|live| live.mark_obsolete()))?;
        let sequence = placed.first;
        let ingested: Vec<_> =
            opened.iter().map(|live| Arc::new(live.ingested_at(sequence))).collect();
        drop(opened);
        let mut placed = Some(placed);
        if self.options.has_bug(PlantedBug::PublishIngestEarly) {
            placed = None;
            self.writer.publish().wait_visible(sequence);
        }
        let in_parts = self.options.has_bug(PlantedBug::IngestInParts);
        let part = if in_parts { ingested.len().div_ceil(2) } else { ingested.len() };
        let edited = ingested.chunks(part).try_for_each(|tables| {
            let added = tables.iter().map(|live| (tree.id, Arc::clone(&live.meta)));
            let edit = VersionEdit {
                tables_added: added.collect(),
                last_sequence: Some(sequence),
                log_mark: Some(self.writer.log().mark()),
                ..VersionEdit::default()
            };
            self.edit_manifest(
                |_| Some(edit),
                |_| {
                    // The extractor may have changed since the tables were opened.
                    let extractor = &tree.options().prefix_extractor;
                    tables.iter().for_each(|live| self.tables.fit_extractor(live, extractor));
                    tree.install_ingested(|old| next(old, tables));
                },
            )
        });
        if edited.is_err() {
            self.note_uncertain(&ingested);
        }
        // Also after an error: later writes must not wait for this one.
        drop(placed);
        edited?;
        self.writer.publish().wait_visible(sequence);
        self.filters.note_installed(self, fits, false);
        self.count_ingested(&ingested);
        Ok(sequence)
    }

    /// Makes the names of `written` durable, then the record of their ingest.
    fn log_ingest(
        &self,
        tree: &Arc<Tree>,
        written: &[Arc<TableMeta>],
    ) -> Result<PlacedWrite<'_, Self>> {
        self.tables.check_not_closing()?;
        self.tables.sync_dir()?;
        let durability = match self.options.has_bug(PlantedBug::IngestBeforeLogSync) {
            true => Durability::Memory,
            false => Durability::Disk,
        };
        let mut ids: Vec<_> = written.iter().map(|table| table.id).collect();
        ids.sort_unstable();
        let mut record = Write::ingest(tree, &ids);
        let placed = self.place(OnStall::Wait, &mut record, durability, &mut Always)?;
        let Some((placed, _)) = placed else {
            unreachable!("a record without a condition is placed");
        };
        self.make_durable(placed.in_flight(), durability).map(drop)?;
        Ok(placed)
    }

    fn count_ingested(&self, tables: &[Arc<LiveTable>]) {
        let counters = &self.tables.counters.local().writes;
        counters.batches.add(1);
        counters.entries.add(tables.iter().map(|live| live.meta.entries).sum());
        counters.bytes.add(tables.iter().map(|live| live.meta.written_bytes()).sum());
    }
}

/// Returns the level for an ingested table with these bounds: the deepest level above all
/// overlapping tables, or the last level if none overlaps. Returns 0 if there is no such level, or
/// if a running compaction overlaps: its outputs are not known.
fn level_for(version: &Version, running: &[Compaction], bounds: &TableBounds) -> u8 {
    let is_apart = |other: &TableBounds| other.is_before(bounds) || bounds.is_before(other);
    if !running.iter().all(|compaction| is_apart(&compaction.bounds)) {
        return 0;
    }
    let mut deepest = 0;
    for run in version.runs() {
        if !run.overlapping(bounds).is_empty() {
            return deepest;
        }
        deepest = run.level;
    }
    LAST_LEVEL
}

/// An ingest into a keyspace that is being installed.
struct Ingesting<'a> {
    store: &'a Store,
    tree: &'a Arc<Tree>,
    /// Compactions that were running when it began.
    running: Vec<Compaction>,
}

impl<'a> Ingesting<'a> {
    /// Makes writes to `tree` and its compactions wait.
    fn begin(store: &'a Store, tree: &'a Arc<Tree>) -> Self {
        {
            let _placement = store.writer.placement();
            tree.begin_ingest();
        }
        Self { store, tree, running: store.scheduler.begin_ingest(tree) }
    }
}

impl Drop for Ingesting<'_> {
    fn drop(&mut self) {
        self.tree.end_ingest();
        self.store.scheduler.end_ingest(self.tree);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::choice::Reason;

    #[test]
    fn a_table_above_nothing_goes_to_the_last_level_unless_a_compaction_is_in_the_way() {
        let inclusive = |first, last| TableBounds::inclusive([first], [last]);
        let running = [Compaction {
            reason: Reason::Level0,
            inputs: Vec::new(),
            output_level: 3,
            output_run: 0,
            is_trivial_move: false,
            is_unlink: false,
            input_bytes: 0,
            bounds: inclusive(b'e', b'g'),
        }];
        let level = |first, last| level_for(&Version::default(), &running, &inclusive(first, last));
        assert_eq!(level(b'a', b'd'), LAST_LEVEL);
        assert_eq!(level(b'a', b'e'), 0);
        assert_eq!(level(b'f', b'f'), 0);
        assert_eq!(level(b'h', b'z'), LAST_LEVEL);
    }
}
