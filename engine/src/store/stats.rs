//! Collects the statistics of a store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sievedb_format::Kind;

use super::Store;
use crate::{
    KeyspaceOptions,
    compaction::blob_garbage::blob_values,
    filters,
    fold::Folder,
    level_count::LEVELS,
    memory::MemoryUse,
    read::tree::Tree,
    stats::{KeyspaceStats, LevelShape, MemoryStats, Stats},
};

impl Store {
    /// Returns the statistics since the opening.
    pub(crate) fn stats(&self) -> Stats {
        let (counters, now) = (&self.tables.counters, self.options.clock.now());
        let trees: Vec<_> = self.versions.trees().values().cloned().collect();
        let mut stats = Stats {
            open_for: now.saturating_sub(self.versions.clock().opened_at()),
            opened_ms: self.versions.clock().opened_ms(),
            last_sequence: self.writer.visible(),
            lookups: counters.lookups(),
            writes: counters.writes(),
            levels: (0..LEVELS).map(|level| counters.level(level)).collect(),
            table_reads: counters.table_reads(),
            memory: self.memory_stats(),
            moves: self.tables.cache_room.moves(),
            background: self.scheduler.done(),
            compaction_bytes_refused: self.scheduler.refused_bytes(),
            opening: self.opening,
            read_only: self.versions.why_read_only(),
            ..Stats::default()
        };
        counters.add_memtables_to(&mut stats.moves);
        self.filters.add_to(&mut stats, self);
        let log = self.writer.log().size();
        (stats.log_segments, stats.log_bytes) = (log.segments, log.bytes);
        stats.writes.log_syncs = log.syncs;
        (stats.changes_kept_after, stats.retained_log_bytes) = self.retained_stats();
        let (snapshots, oldest) = self.versions.snapshots().open();
        let age = oldest.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        (stats.snapshots, stats.oldest_snapshot_us) = (snapshots, age.as_micros() as u64);
        for tree in &trees {
            add_tree(&mut stats, tree);
        }
        stats.tables_quarantined = stats.quarantined.len() as u64;
        for level in &mut stats.levels {
            // So far a sum over the runs.
            level.filter_fpr_expected /= (level.runs as f64).max(1.0);
        }
        let of_trees = trees.iter().map(|tree| self.write_delay_us(tree)).max().unwrap_or(0);
        let merges_tables = self.scheduler.merges_tables();
        let of_tables = merges_tables.then(|| self.tables_delay().as_micros() as u64);
        stats.write_delay_us = of_trees.max(of_tables.unwrap_or(0));
        stats
    }

    fn memory_stats(&self) -> MemoryStats {
        let Self { tables, .. } = self;
        let (memory, cache) = (&tables.memory, &tables.cache);
        let (filter_bytes, filter_bytes_max) = filters::bytes_and_max(tables);
        MemoryStats {
            budget_bytes: memory.pool_bytes(),
            budget_source: Some(self.memory_budget.lock().source()),
            memtable_bytes: memory.memtable_bytes(),
            memtable_bytes_max: memory.limit(MemoryUse::Memtables),
            filter_bytes,
            filter_bytes_max,
            index_bytes: memory.bytes(MemoryUse::Indexes),
            bookkeeping_bytes: memory.bytes(MemoryUse::Bookkeeping),
            writing_bytes: memory.bytes(MemoryUse::Writing),
            writing_bytes_max: memory.limit(MemoryUse::Writing),
            block_cache_bytes: cache.memory_bytes(),
            block_cache_bytes_max: cache.capacity_bytes(),
            block_page_bytes: cache.page_bytes(),
            pinned_bytes: memory.bytes(MemoryUse::PinnedMemtables) + cache.pinned_bytes(),
            mapped_bytes: tables.mapped_bytes(),
        }
    }
}

fn add_tree(stats: &mut Stats, tree: &Arc<Tree>) {
    let view = tree.view_seldom();
    let memtable_bytes = view.memtables().map(|memtable| memtable.memory_bytes() as u64).sum();
    let mut keyspace = KeyspaceStats {
        name: tree.name(),
        options: KeyspaceOptions::clone(&tree.options()),
        memtable_bytes,
        frozen_memtables: view.frozen.len() as u64,
        runs: view.version.runs().len() as u64,
        merges_failed: tree.operator().get().map_or(0, Folder::failures),
        ..KeyspaceStats::default()
    };
    let mut shapes = BTreeMap::<u8, LevelShape>::new();
    for run in view.version.runs() {
        let shape = shapes.entry(run.level);
        shape.or_insert(LevelShape { level: run.level, ..LevelShape::default() }).runs += 1;
        stats.levels[usize::from(run.level)].runs += 1;
        filters::add_run(stats, run);
    }
    for (level, _, live) in view.version.tables() {
        let meta = &live.meta;
        filters::add_table(stats, level, live);
        stats.quarantined.extend(live.quarantined(&keyspace.name, level));
        keyspace.tables += 1;
        keyspace.table_bytes += meta.bytes;
        keyspace.entries += meta.entries;
        keyspace.blob_depth = keyspace.blob_depth.max(meta.blob_depth);
        keyspace.range_tombstones += meta.range_tombstones;
        keyspace.merge_operands += live.table.properties().count(Kind::Merge);
        if let Some(shape) = shapes.get_mut(&level) {
            shape.tables += 1;
            shape.bytes += meta.bytes;
            shape.entries += meta.entries;
        }
        let level = &mut stats.levels[usize::from(level)];
        level.tables += 1;
        level.bytes += meta.bytes;
        level.entries += meta.entries;
        level.tombstones += meta.tombstones;
    }
    let metas = view.version.tables().map(|(_, _, live)| &*live.meta);
    for values in blob_values(metas).into_values() {
        keyspace.blob_files += 1;
        keyspace.blob_bytes += values.file_bytes;
        keyspace.blob_garbage_bytes += values.garbage();
    }
    keyspace.levels = shapes.into_values().collect();
    stats.keyspaces.push(keyspace);
}
