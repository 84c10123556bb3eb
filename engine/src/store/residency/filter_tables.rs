//! All tables whose filters share a budget, in the order in which the planner is told of them.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::measured_use::MeasuredUse;
use crate::{
    filter_plan::{
        FilterPlan, KeyspaceShape, Residence, RunShape, StoreShape, StoredFilter, TableShape,
    },
    filter_policy::FilterPolicy,
    read::tree::Tree,
    table::{LiveTable, TableFilters, store::TablePlace},
    version::Version,
};

/// All tables whose filters share a budget.
#[derive(Debug, Default)]
pub(super) struct FilterTables {
    pub(super) keyspaces: Vec<KeyspaceTables>,
}

/// The tables of a keyspace.
#[derive(Debug)]
pub(super) struct KeyspaceTables {
    id: u64,
    pub(super) name: String,
    pub(super) policy: FilterPolicy,
    /// `None` while the store is opened: nobody reads yet.
    pub(super) tree: Option<Arc<Tree>>,
    /// Newest first.
    runs: Vec<(TablePlace, Vec<Arc<LiveTable>>)>,
}

/// What should be in memory of a table's filter.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Index in [`FilterTables::keyspaces`].
    pub(super) keyspace: usize,
    pub(super) live: Arc<LiveTable>,
    pub(super) residence: Residence,
}

impl KeyspaceTables {
    /// These tables, each with its level and run.
    pub(super) fn new<'a>(
        id: u64,
        name: &str,
        policy: FilterPolicy,
        tables: impl IntoIterator<Item = (u8, u64, &'a Arc<LiveTable>)>,
    ) -> Self {
        let mut runs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (level, run, live) in tables {
            runs.entry((level, Reverse(run))).or_default().push(Arc::clone(live));
        }
        let place = |(level, Reverse(run))| TablePlace { level, run };
        let runs = runs.into_iter().map(|(at, tables)| (place(at), tables)).collect();
        Self { id, name: name.to_owned(), policy, tree: None, runs }
    }

    /// The tables of `version`, which is that of `tree` or is to be.
    pub(super) fn of_tree(tree: &Arc<Tree>, version: &Version) -> Self {
        let tables = Self::new(tree.id, &tree.name, tree.filter_policy(), version.tables());
        Self { tree: Some(Arc::clone(tree)), ..tables }
    }

    /// Whether they are those of `tree`.
    pub(super) fn is_of(&self, tree: &Tree) -> bool {
        self.id == tree.id
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        self.runs.iter().flat_map(|(_, tables)| tables)
    }

    /// Bytes that prefix and range filters take.
    fn other_bytes(&self) -> u64 {
        self.tables().map(|live| live.filters().other_bytes() as u64).sum()
    }

    /// What the policy leaves to point filters.
    fn point_bytes_max(&self) -> Option<u64> {
        self.policy.memory_bytes_max.map(|bytes| bytes.saturating_sub(self.other_bytes()))
    }

    /// Bytes that the filters take.
    pub(super) fn filter_bytes(&self) -> u64 {
        self.tables().map(|live| live.filters().memory_bytes() as u64).sum()
    }
}

impl FilterTables {
    /// The keyspaces and their tables, by id.
    pub(super) fn ids(&self) -> Vec<(u64, Vec<u64>)> {
        let ids = |keyspace: &KeyspaceTables| keyspace.tables().map(|live| live.meta.id).collect();
        self.keyspaces.iter().map(|keyspace| (keyspace.id, ids(keyspace))).collect()
    }

    /// What the planner is told.
    pub(super) fn shape(&self, filter_bytes_max: u64, measured: &MeasuredUse) -> StoreShape {
        let keyspaces = self.keyspaces.iter().map(|keyspace| KeyspaceShape {
            policy: keyspace.policy,
            filter_bytes_max: keyspace.point_bytes_max(),
            lookups: measured.lookups(keyspace.id),
            runs: keyspace.runs.iter().map(|run| run_shape(keyspace.id, run, measured)).collect(),
        });
        // What prefix and range filters take is not the planner's.
        let filter_bytes_max = Some(filter_bytes_max).filter(|&bytes| bytes < u64::MAX);
        let others = self.keyspaces.iter().map(KeyspaceTables::other_bytes).sum();
        let filter_bytes_max = filter_bytes_max.map(|bytes| bytes.saturating_sub(others));
        StoreShape { filter_bytes_max, keyspaces: keyspaces.collect() }
    }

    /// What `plan`, made from the shape of these tables, wants of each of them.
    pub(super) fn targets(&self, plan: &FilterPlan) -> Vec<Target> {
        let mut targets = Vec::new();
        for ((index, tables), planned) in (0..).zip(&self.keyspaces).zip(&plan.keyspaces) {
            let planned = planned.runs.iter().flat_map(|run| &run.tables);
            targets.extend(tables.tables().zip(planned).map(|(live, target)| Target {
                keyspace: index,
                live: Arc::clone(live),
                residence: target.residence,
            }));
        }
        targets
    }
}

fn run_shape(
    keyspace: u64,
    (place, tables): &(TablePlace, Vec<Arc<LiveTable>>),
    measured: &MeasuredUse,
) -> RunShape {
    let tables = tables.iter().map(|live| {
        let (id, filters) = (live.meta.id, live.filters());
        TableShape {
            id,
            keys: live.meta.entries,
            stored: stored_filter(&filters),
            resident: residence(&filters),
            usage: measured.of_table(keyspace, id),
        }
    });
    RunShape { place: *place, tables: tables.collect() }
}

/// What can be in memory at most.
pub(crate) fn stored_filter(filters: &TableFilters) -> Option<StoredFilter> {
    let (kind, columns) = filters.available()?;
    let whole_bytes = filters.memory_bytes_at(f64::INFINITY);
    Some(StoredFilter { kind, columns: columns.unwrap_or(0.0), whole_bytes })
}

/// What is in memory.
fn residence(filters: &TableFilters) -> Residence {
    if filters.point.resident().is_none() {
        return Residence::Nothing;
    }
    match filters.resident_columns() {
        Some(columns) if !filters.is_whole() => Residence::Columns(columns),
        _ => Residence::Whole,
    }
}
