//! The tables of a keyspace at one moment.

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

/// Numbers the versions of this process.
static NEXT_VERSION_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The tables of a keyspace at one moment: sorted runs, the newest data first.
///
/// For any key, each version in a run is newer than all its versions in later runs. Level 0 is
/// several runs, each deeper level is at most one.
#[derive(Debug)]
pub(crate) struct Version {
    number: u64,
    runs: Vec<Run>,
    has_range_tombstones: bool,
}

/// No tables.
impl Default for Version {
    fn default() -> Self {
        Self::new([])
    }
}

impl Version {
    /// The version of these tables, each with its level and run.
    pub(crate) fn new(tables: impl IntoIterator<Item = (u8, u64, Arc<LiveTable>)>) -> Self {
        let mut tables: Vec<_> = tables.into_iter().collect();
        let has_range_tombstones =
            tables.iter().any(|(_, _, table)| !table.table.range_tombstones().is_empty());
        tables.sort_by_key(|&(level, run, _)| (level, u64::MAX - run));
        let mut runs = Vec::new();
        for group in tables.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (level, id, _) = group[0];
            let tables = group.iter().map(|(_, _, table)| Arc::clone(table)).collect();
            runs.push(Run::new(level, id, tables));
        }
        let number = NEXT_VERSION_NUMBER.fetch_add(1, Relaxed);
        Self { number, runs, has_range_tombstones }
    }

    /// No other version of this process has this number: where it is the same, the tables are.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The sorted runs, the newest data first.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Every table with its level and run.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u8, u64, &Arc<LiveTable>)> {
        self.runs
            .iter()
            .flat_map(|run| run.tables().iter().map(move |table| (run.level, run.id, table)))
    }

    /// What the manifest knows of the tables, with their present level, run and places of the
    /// filters.
    pub(crate) fn metas(&self) -> Vec<Cow<'_, TableMeta>> {
        self.tables().map(|(level, run, live)| live.present_meta(level, run)).collect()
    }

    /// Number of runs of level 0.
    pub(crate) fn level0_runs(&self) -> usize {
        self.runs.iter().take_while(|run| run.level == 0).count()
    }

    /// Whether any table has range tombstones.
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones
    }
}
