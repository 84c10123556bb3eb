//! Adds up what a store holds.

use std::sync::Arc;

use super::Store;
use crate::{
    memory::MemoryUse,
    read::tree::Tree,
    stats::{KeyspaceStats, LevelStats, MemoryStats, Stats},
    version::LEVELS,
};

impl Store {
    /// What the store holds and what it did since it was opened.
    pub(crate) fn stats(&self) -> Stats {
        let counters = &self.tables.counters;
        let trees: Vec<_> = self.trees.read().values().cloned().collect();
        let mut stats = Stats {
            last_sequence: self.publish.visible(),
            lookups: counters.lookups(),
            levels: (0..LEVELS).map(|level| counters.level(level)).collect(),
            table_reads: counters.table_reads(),
            memory: self.memory_stats(),
            background: self.background.done(),
            false_positives_planned: self.residency.false_positives_planned(),
            read_only: self.read_only.get().map(|cause| cause.to_string()),
            ..Stats::default()
        };
        (stats.log_segments, stats.log_bytes) = self.log.size();
        for tree in &trees {
            add_tree(&mut stats, tree);
        }
        for level in &mut stats.levels {
            // So far the sum over tables, each weighed by its entries.
            level.filter_fpr_expected /= (level.entries as f64).max(1.0);
        }
        stats.write_delay_us = trees.iter().map(Tree::write_delay_us).max().unwrap_or(0);
        stats
    }

    fn memory_stats(&self) -> MemoryStats {
        let Self { tables, .. } = self;
        let (memory, cache) = (&tables.memory, &tables.cache);
        let arena = tables.filter_arena.stats();
        let arena_waste = arena.bytes.saturating_sub(arena.used_bytes);
        MemoryStats {
            memtable_bytes: memory.memtable_bytes(),
            memtable_bytes_max: memory.limit(MemoryUse::Memtables),
            filter_bytes: memory.bytes(MemoryUse::Filters) + arena_waste as u64,
            filter_bytes_max: memory.limit(MemoryUse::Filters),
            index_bytes: memory.bytes(MemoryUse::Indexes),
            writing_bytes: memory.bytes(MemoryUse::Writing),
            writing_bytes_max: memory.limit(MemoryUse::Writing),
            block_cache_bytes: cache.memory_bytes(),
            block_cache_bytes_max: cache.capacity_bytes(),
            pinned_bytes: memory.bytes(MemoryUse::PinnedMemtables)
                + memory.pinned_batch_bytes()
                + cache.pinned_bytes(),
        }
    }
}

fn add_tree(stats: &mut Stats, tree: &Arc<Tree>) {
    let view = tree.view();
    let memtable_bytes = view.memtables().map(|memtable| memtable.memory_bytes() as u64).sum();
    let mut keyspace = KeyspaceStats {
        name: tree.name.clone(),
        memtable_bytes,
        frozen_memtables: view.frozen.len() as u64,
        runs: view.version.runs().len() as u64,
        ..KeyspaceStats::default()
    };
    for run in view.version.runs() {
        stats.levels[usize::from(run.level)].runs += 1;
    }
    for (level, _, live) in view.version.tables() {
        let meta = &live.meta;
        let (filters, scan_filters) = (live.filters(), live.scan_filters());
        let is_unusable = filters.unusable().is_some() || scan_filters.unusable().is_some();
        stats.filters_unusable += u64::from(is_unusable);
        let is_whole = filters.is_whole() && scan_filters.is_whole();
        stats.filters_not_whole += u64::from(!is_whole);
        keyspace.tables += 1;
        keyspace.table_bytes += meta.bytes;
        keyspace.entries += meta.entries;
        let LevelStats { tables, bytes, entries, tombstones, filter_bytes, .. } =
            &mut stats.levels[usize::from(level)];
        *tables += 1;
        *bytes += meta.bytes;
        *entries += meta.entries;
        *tombstones += meta.tombstones;
        *filter_bytes += (filters.memory_bytes() + scan_filters.memory_bytes()) as u64;
        let fpr = filters.point.resident().map_or(1.0, |filter| filter.expected_fpr());
        stats.levels[usize::from(level)].filter_fpr_expected += fpr * meta.entries as f64;
    }
    stats.keyspaces.push(keyspace);
}
