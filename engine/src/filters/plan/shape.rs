//! Input of the planner.

use std::{cmp::Reverse, collections::BTreeMap};

use sievedb_filter::FilterKind;

use crate::{
    filter_policy::FilterPolicy,
    table::{TableMeta, TablePlace},
};

/// All filters of a store, and their bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreShape {
    /// Maximum bytes of the filters of all keyspaces, including replacements in progress. `None`
    /// for no bound.
    pub(crate) filter_bytes_max: Option<u64>,
    pub(crate) keyspaces: Vec<KeyspaceShape>,
}

/// The filters of a keyspace.
#[derive(Debug, Clone)]
pub(crate) struct KeyspaceShape {
    pub(crate) policy: FilterPolicy,
    /// The same bound for this keyspace alone.
    pub(crate) filter_bytes_max: Option<u64>,
    /// Decayed number of lookups; 0 before the first counted lookup.
    pub(crate) lookups: f64,
    /// Runs, newest first: of equal tables, the deeper one loses its filter first.
    pub(crate) runs: Vec<RunShape>,
}

/// A sorted run: a lookup probes at most one of its tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunShape {
    pub(crate) place: TablePlace,
    pub(crate) tables: Vec<TableShape>,
}

/// A table and its filter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableShape {
    pub(crate) id: u64,
    /// Number of entries, which hardly exceeds the number of keys.
    pub(crate) keys: u64,
    /// The stored filter, if usable.
    pub(crate) stored: Option<StoredFilter>,
    /// The part in memory now.
    pub(crate) resident: Residence,
    pub(crate) usage: TableUse,
}

/// A filter in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredFilter {
    pub(crate) kind: FilterKind,
    /// Columns of a ribbon, averaged over its blocks. Unused for other kinds.
    pub(crate) columns: f64,
    /// Bytes in memory of the whole filter. The length of its block in the file is close enough.
    pub(crate) whole_bytes: u64,
}

/// Part of a stored filter that is, or should be, in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Residence {
    /// No filter: every key may match.
    #[default]
    Nothing,
    /// This number of columns of a ribbon, at least 1 and fewer than are stored, as
    /// [`Ribbon::shrunk_to`](sievedb_filter::Ribbon::shrunk_to) takes them.
    Columns(f64),
    /// The whole stored filter.
    Whole,
}

/// Measured use of a table.
///
/// Both counts start at the same time, when the table was created or later, and decay alike. Their
/// ratio is the share of the keyspace's lookups with this table as a candidate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableUse {
    /// Lookups with the table as a candidate.
    pub(crate) probes: f64,
    /// Lookups of the keyspace.
    pub(crate) lookups: f64,
}

impl StoreShape {
    /// Returns the shape of one keyspace without a bound, from the metadata of its tables. This
    /// suffices for filters in files, whose size the policy determines.
    pub(crate) fn of_tables<'a>(
        policy: FilterPolicy,
        tables: impl IntoIterator<Item = &'a TableMeta>,
    ) -> Self {
        let mut runs: BTreeMap<_, Vec<TableShape>> = BTreeMap::new();
        for table in tables {
            let shape = TableShape { id: table.id, keys: table.entries, ..TableShape::default() };
            runs.entry((table.level, Reverse(table.run))).or_default().push(shape);
        }
        let runs = runs.into_iter().map(|((level, Reverse(run)), tables)| RunShape {
            place: TablePlace { level, run },
            tables,
        });
        let runs = runs.collect();
        let keyspace = KeyspaceShape { policy, filter_bytes_max: None, lookups: 0.0, runs };
        Self { filter_bytes_max: None, keyspaces: vec![keyspace] }
    }
}

impl KeyspaceShape {
    /// Keys of all runs.
    pub(super) fn keys(&self) -> u64 {
        self.runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.keys()))
    }

    /// Bytes of the largest stored filter.
    pub(super) fn largest_bytes(&self) -> u64 {
        let tables = self.runs.iter().flat_map(|run| &run.tables);
        let stored = tables.filter_map(|table| table.stored);
        stored.map(|stored| stored.whole_bytes).max().unwrap_or(0)
    }
}

impl RunShape {
    /// Keys of all tables.
    pub(super) fn keys(&self) -> u64 {
        self.tables.iter().fold(0, |sum: u64, table| sum.saturating_add(table.keys))
    }
}
