//! Scripted histories, each for one risk.
//!
//! They are short, because every crash of them is tried. They sync often, because each unsynced
//! write multiplies the crashes.

mod blobs;
mod changes;
mod checkpoints;
mod conditional;
mod durability;
mod expiring;
mod expiry;
mod filtered;
mod filters;
mod history;
mod ingests;
mod keyspaces;
mod log;
mod merges;
mod operands;
mod ranges;
mod reading;
mod styles;
mod transactions;

use crate::recorder::Recorder;

/// A scripted history.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Name.
    pub name: &'static str,
    /// Makes the calls.
    pub run: fn(&mut Recorder),
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "disk", run: durability::disk },
    Workload { name: "os-buffer", run: durability::os_buffer },
    Workload { name: "memory", run: durability::memory },
    Workload { name: "mixed", run: durability::mixed },
    Workload { name: "reopen", run: durability::reopen },
    Workload { name: "reopen-often", run: durability::reopen_often },
    Workload { name: "reopen-continued", run: durability::reopen_continued },
    Workload { name: "reopen-flushed", run: durability::reopen_flushed },
    Workload { name: "log-rotation", run: log::rotation },
    Workload { name: "log-pinned", run: log::pinned },
    Workload { name: "large-batch", run: log::large_batch },
    Workload { name: "large-values", run: log::large_values },
    Workload { name: "manifest-growth", run: log::manifest_growth },
    Workload { name: "flush", run: merges::flush },
    Workload { name: "flush-by-size", run: merges::flush_by_size },
    Workload { name: "compaction", run: merges::compaction },
    Workload { name: "compaction-by-count", run: merges::compaction_by_count },
    Workload { name: "trivial-moves", run: merges::trivial_moves },
    Workload { name: "overwrite-remove", run: merges::overwrite_remove },
    Workload { name: "tombstones-above", run: merges::tombstones_above },
    Workload { name: "merges-in-level0", run: merges::merges_in_level0 },
    Workload { name: "remove-all", run: merges::remove_all },
    Workload { name: "range-removals", run: merges::range_removals },
    Workload { name: "range-removals-flushed", run: ranges::flushed },
    Workload { name: "range-removals-drop-tables", run: ranges::dropped_tables },
    Workload { name: "range-removals-in-batches", run: ranges::batches },
    Workload { name: "range-removals-snapshots", run: ranges::snapshots },
    Workload { name: "odd-keys", run: merges::odd_keys },
    Workload { name: "merge-operands", run: operands::operands },
    Workload { name: "compaction-filter", run: filtered::filtered },
    Workload { name: "merge-folded-by-flushes", run: operands::folded_by_flushes },
    Workload { name: "merge-folded-by-compactions", run: operands::folded_by_compactions },
    Workload { name: "merge-operator-added", run: operands::operator_added },
    Workload { name: "conditional-swaps", run: conditional::swaps },
    Workload { name: "conditional-queue", run: conditional::queue },
    Workload { name: "expiring-values", run: expiring::values },
    Workload { name: "expiry-changes", run: expiring::changes },
    Workload { name: "batches", run: keyspaces::batches },
    Workload { name: "half-flushed", run: keyspaces::half_flushed },
    Workload { name: "batches-memory", run: keyspaces::batches_memory },
    Workload { name: "drop", run: keyspaces::drop },
    Workload { name: "drop-unflushed", run: keyspaces::drop_unflushed },
    Workload { name: "recreate", run: keyspaces::recreate },
    Workload { name: "clear", run: keyspaces::clear },
    Workload { name: "clear-unflushed", run: keyspaces::clear_unflushed },
    Workload { name: "rename", run: keyspaces::rename },
    Workload { name: "swap-names", run: keyspaces::swap_names },
    Workload { name: "many-keyspaces", run: keyspaces::many },
    Workload { name: "ingests", run: ingests::all_levels },
    Workload { name: "ingests-beside-writes", run: ingests::beside_writes },
    Workload { name: "ingests-of-blobs", run: ingests::of_blobs },
    Workload { name: "ingests-of-files", run: ingests::of_files },
    Workload { name: "filters-rebuilt", run: filters::rebuilt },
    Workload { name: "filters-compacted", run: filters::rebuilt_and_compacted },
    Workload { name: "filters-of-scans", run: filters::of_scans_rebuilt },
    Workload { name: "blob-files", run: blobs::written },
    Workload { name: "blob-files-rewritten", run: blobs::rewritten },
    Workload { name: "logged-values", run: blobs::logged },
    Workload { name: "streamed-values", run: blobs::streamed },
    Workload { name: "expiry-jumps", run: expiry::jumps },
    Workload { name: "expiry-by-default", run: expiry::defaults },
    Workload { name: "history", run: history::kept },
    Workload { name: "history-cut", run: history::cut },
    Workload { name: "history-set", run: history::set },
    Workload { name: "changes-retained", run: changes::retained },
    Workload { name: "changes-keyspaces", run: changes::keyspaces },
    Workload { name: "changes-dropped", run: changes::dropped },
    Workload { name: "changes-anything", run: changes::anything },
    Workload { name: "changes-large", run: changes::large },
    Workload { name: "transactions", run: transactions::transfers },
    Workload { name: "transactions-ranges", run: transactions::ranges },
    Workload { name: "transaction-savepoints", run: transactions::savepoints },
    Workload { name: "transaction-conflicts", run: transactions::conflicts },
    Workload { name: "snapshots", run: reading::snapshots },
    Workload { name: "held-ranges", run: reading::held_ranges },
    Workload { name: "checkpoints", run: checkpoints::taken },
    Workload { name: "checkpoints-of-long-logs", run: checkpoints::of_long_logs },
    Workload { name: "size-tiered", run: styles::tiered },
    Workload { name: "styles-changed", run: styles::changed },
    Workload { name: "anything", run: reading::anything },
];

/// Returns the workload `name`.
///
/// # Panics
///
/// If it does not exist.
#[must_use]
pub fn workload(name: &str) -> &'static Workload {
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.unwrap_or_else(|| panic!("there is no workload {name}"))
}

/// Returns key `number` of a workload.
fn key(number: usize) -> String {
    format!("key{number:04}")
}
