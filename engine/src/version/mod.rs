//! The tables of a keyspace at one point in time.

mod packed_keys;
mod run;

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

pub(crate) use packed_keys::head;
pub(crate) use run::Run;

use crate::table::{LiveTable, TableMeta};

static NEXT_VERSION_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Sorted runs, newest first.
///
/// For any key, each version in a run is newer than all its versions in later runs. Level 0 has
/// several runs, each deeper level at most one.
#[derive(Debug)]
pub(crate) struct Version {
    number: u64,
    runs: Vec<Run>,
    has_range_tombstones: bool,
    has_expiry: bool,
}

impl Default for Version {
    fn default() -> Self {
        Self::new([])
    }
}

impl Version {
    /// Returns the version of these tables, each with its level and run.
    pub(crate) fn new(tables: impl IntoIterator<Item = (u8, u64, Arc<LiveTable>)>) -> Self {
        let mut tables: Vec<_> = tables.into_iter().collect();
        let has_range_tombstones =
            tables.iter().any(|(_, _, table)| !table.table.range_tombstones().is_empty());
        let expires = |live: &LiveTable| live.table.properties().expiry.is_some();
        let has_expiry = tables.iter().any(|(_, _, live)| expires(live));
        tables.sort_by_key(|&(level, run, _)| (level, u64::MAX - run));
        let mut runs = Vec::new();
        for group in tables.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (level, id, _) = group[0];
            let tables = group.iter().map(|(_, _, table)| Arc::clone(table)).collect();
            runs.push(Run::new(level, id, tables));
        }
        debug_assert!(
            runs.array_windows().all(|[newer, older]: &[Run; 2]| newer.level < older.level
                || (newer.level == 0 && older.level == 0 && newer.id > older.id))
        );
        let number = NEXT_VERSION_NUMBER.fetch_add(1, Relaxed);
        Self { number, runs, has_range_tombstones, has_expiry }
    }

    /// Returns a number unique in this process: equal numbers mean equal tables.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the sorted runs, newest first.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns every table with its level and run.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u8, u64, &Arc<LiveTable>)> {
        self.runs
            .iter()
            .flat_map(|run| run.tables().iter().map(move |table| (run.level, run.id, table)))
    }

    /// Returns the metadata of the tables, with their present level, run and filters.
    pub(crate) fn metas(&self) -> Vec<Cow<'_, TableMeta>> {
        self.tables().map(|(level, run, live)| live.present_meta(level, run)).collect()
    }

    pub(crate) fn level0_runs(&self) -> usize {
        self.runs.iter().take_while(|run| run.level == 0).count()
    }

    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones
    }

    /// Returns whether any table has entries that expire.
    pub(crate) fn has_expiry(&self) -> bool {
        self.has_expiry
    }
}
