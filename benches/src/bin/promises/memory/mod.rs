//! The budget as the one setting: resident memory, what the block cache gets, bursts of writes,
//! defaults.
//!
//! Each store is opened with [`sievedb::Options::memory_budget`] and no other setting. Entries are
//! generated from their numbers, so that the measurement itself holds no data.

mod burst;
mod cache;
mod data;
mod defaults;
mod memtable_limit;
mod resident;

use crate::figure::Measurement;

/// The measurements. The item is the number under "Deliver" in the issue.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    Measurement { item: "3", name: "resident-16", measure: resident::phases::<16> },
    Measurement { item: "3", name: "resident-32", measure: resident::phases::<32> },
    Measurement { item: "3", name: "resident-64", measure: resident::phases::<64> },
    Measurement { item: "3", name: "resident-256", measure: resident::phases::<256> },
    Measurement { item: "3", name: "resident-1024", measure: resident::phases::<1_024> },
    Measurement { item: "3", name: "resident-batches-16", measure: resident::batches::<16> },
    Measurement { item: "3", name: "resident-batches-32", measure: resident::batches::<32> },
    Measurement { item: "3", name: "resident-batches-64", measure: resident::batches::<64> },
    Measurement { item: "3", name: "resident-batches-256", measure: resident::batches::<256> },
    Measurement { item: "3", name: "resident-batches-1024", measure: resident::batches::<1_024> },
    Measurement { item: "3", name: "resident-keyspaces-16", measure: resident::keyspaces::<16> },
    Measurement { item: "3", name: "resident-keyspaces-32", measure: resident::keyspaces::<32> },
    Measurement { item: "3", name: "resident-keyspaces-64", measure: resident::keyspaces::<64> },
    Measurement { item: "3", name: "resident-keyspaces-256", measure: resident::keyspaces::<256> },
    Measurement {
        item: "3",
        name: "resident-keyspaces-1024",
        measure: resident::keyspaces::<1_024>,
    },
    Measurement { item: "1", name: "cache-after-load", measure: cache::after_load },
    Measurement { item: "1", name: "cache-after-batches", measure: cache::after_batches },
    Measurement { item: "1", name: "cache-after-mixed", measure: cache::after_mixed },
    Measurement { item: "1", name: "cache-after-keyspaces", measure: cache::after_keyspaces },
    Measurement { item: "2", name: "write-burst", measure: burst::measure },
    Measurement { item: "2", name: "memtable-limit", measure: memtable_limit::measure },
    Measurement { item: "4", name: "default-budget", measure: defaults::measure },
];
