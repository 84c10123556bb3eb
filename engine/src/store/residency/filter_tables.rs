//! All tables whose filters share a budget, in the order in which the planner is told of them.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{
    measured_use::MeasuredUse,
    scan_choice::{Bound, Candidate, choose},
};
use crate::{
    filter_policy::FilterPolicy,
    filters::plan::{
        self, FilterPlan, KeyspaceShape, Residence, RunShape, StoreShape, StoredFilter, TableShape,
    },
    read::tree::Tree,
    table::{LiveTable, TableFilters, TablePlace, scan_filters::Wanted},
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

/// What should be in memory of a table's filters.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Index in [`FilterTables::keyspaces`].
    pub(super) keyspace: usize,
    pub(super) live: Arc<LiveTable>,
    /// Of the point filter.
    pub(super) residence: Residence,
    /// Of the filters that scans ask.
    pub(super) wanted: Wanted,
}

impl Target {
    /// Whether there are filters that scans ask and that have no room.
    pub(super) fn lacks_scan_filters(&self) -> bool {
        let filters = self.live.scan_filters();
        let Wanted { prefix, range } = self.wanted;
        !prefix && filters.prefix_bytes() > 0 || !range && filters.range_bytes() > 0
    }
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

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        self.runs.iter().flat_map(|(_, tables)| tables)
    }

    /// Bytes of all point filters, if they were whole.
    fn point_bytes(&self) -> u64 {
        self.tables().map(|live| live.filters().memory_bytes_at(f64::INFINITY)).sum()
    }

    /// Bytes that the filters take.
    pub(super) fn filter_bytes(&self) -> u64 {
        let bytes_of = |live: &Arc<LiveTable>| {
            live.filters().memory_bytes() + live.scan_filters().memory_bytes()
        };
        self.tables().map(|live| bytes_of(live) as u64).sum()
    }
}

impl FilterTables {
    /// Puts these tables of a keyspace in the place of those that it has.
    pub(super) fn put(&mut self, tables: KeyspaceTables) {
        if let Some(present) = self.keyspaces.iter_mut().find(|present| present.id == tables.id) {
            *present = tables;
        }
    }

    /// The keyspaces and their tables, by id.
    pub(super) fn ids(&self) -> Vec<(u64, Vec<u64>)> {
        let ids = |keyspace: &KeyspaceTables| keyspace.tables().map(|live| live.meta.id).collect();
        self.keyspaces.iter().map(|keyspace| (keyspace.id, ids(keyspace))).collect()
    }

    /// The plan for a budget of so many bytes, and what it wants of each table.
    pub(super) fn plan(
        &self,
        filter_bytes_max: u64,
        measured: &MeasuredUse,
    ) -> (FilterPlan, Vec<Target>) {
        let wanted = self.wanted(filter_bytes_max, measured);
        let plan = plan::plan(&self.shape(filter_bytes_max, measured, &wanted));
        let targets = self.targets(&plan, wanted);
        (plan, targets)
    }

    /// What should be in memory of the filters that scans ask, for each table of each keyspace.
    fn wanted(&self, filter_bytes_max: u64, measured: &MeasuredUse) -> Vec<Vec<Wanted>> {
        let bounds: Vec<_> = self
            .keyspaces
            .iter()
            .map(|it| Bound {
                bytes_max: it.policy.memory_bytes_max.unwrap_or(u64::MAX),
                point_bytes: it.point_bytes(),
                lookups: measured.lookups(it.id),
            })
            .collect();
        let store = Bound {
            bytes_max: filter_bytes_max,
            point_bytes: bounds.iter().map(|bound| bound.point_bytes).sum(),
            lookups: bounds.iter().map(|bound| bound.lookups).sum(),
        };
        let mut candidates = Vec::new();
        for (keyspace, tables) in self.keyspaces.iter().enumerate() {
            for (_, tables) in &tables.runs {
                let keys: u64 = tables.iter().map(|live| live.meta.entries).sum();
                for live in tables {
                    let share = live.meta.entries as f64 / keys.max(1) as f64;
                    candidates.extend(scan_candidates(keyspace, live, share, measured));
                }
            }
        }
        let chosen = choose(&candidates, store, &bounds);
        let mut pairs =
            chosen.as_chunks().0.iter().map(|&[prefix, range]| Wanted { prefix, range });
        let mut of_tables =
            |it: &KeyspaceTables| pairs.by_ref().take(it.tables().count()).collect();
        self.keyspaces.iter().map(&mut of_tables).collect()
    }

    /// What the planner is told, beside the filters that scans ask and that are wanted: they are
    /// not its, only what they leave.
    fn shape(
        &self,
        filter_bytes_max: u64,
        measured: &MeasuredUse,
        wanted: &[Vec<Wanted>],
    ) -> StoreShape {
        let scan_bytes: Vec<_> = self
            .keyspaces
            .iter()
            .zip(wanted)
            .map(|(tables, wanted)| scan_bytes(tables, wanted))
            .collect();
        let keyspaces = self.keyspaces.iter().zip(&scan_bytes).map(|(keyspace, &bytes)| {
            let bytes_max = keyspace.policy.memory_bytes_max;
            KeyspaceShape {
                policy: keyspace.policy,
                filter_bytes_max: bytes_max.map(|bytes_max| bytes_max.saturating_sub(bytes)),
                lookups: measured.lookups(keyspace.id),
                runs: keyspace
                    .runs
                    .iter()
                    .map(|run| run_shape(keyspace.id, run, measured))
                    .collect(),
            }
        });
        let filter_bytes_max = Some(filter_bytes_max).filter(|&bytes| bytes < u64::MAX);
        let filter_bytes_max =
            filter_bytes_max.map(|bytes| bytes.saturating_sub(scan_bytes.iter().sum()));
        StoreShape { filter_bytes_max, keyspaces: keyspaces.collect() }
    }

    /// What `plan`, made from the shape of these tables, wants of each of them.
    fn targets(&self, plan: &FilterPlan, wanted: Vec<Vec<Wanted>>) -> Vec<Target> {
        let mut targets = Vec::new();
        let planned = self.keyspaces.iter().zip(&plan.keyspaces).zip(wanted);
        for (keyspace, ((tables, planned), wanted)) in planned.enumerate() {
            let planned = planned.runs.iter().flat_map(|run| &run.tables).zip(wanted);
            targets.extend(tables.tables().zip(planned).map(|(live, (target, wanted))| Target {
                keyspace,
                live: Arc::clone(live),
                residence: target.residence,
                wanted,
            }));
        }
        targets
    }
}

/// The prefix filter and the range filter of a table that has this share of the keys of its run.
fn scan_candidates(
    keyspace: usize,
    live: &LiveTable,
    share: f64,
    measured: &MeasuredUse,
) -> [Candidate; 2] {
    let (filters, scans) = (live.scan_filters(), measured.scans_of(live.meta.id));
    let candidate =
        |bytes, scans, is_resident| Candidate { keyspace, bytes, share, scans, is_resident };
    let (has_prefix, has_range) = (filters.has_prefix(), filters.range().resident().is_some());
    [
        candidate(filters.prefix_bytes(), scans.prefix, has_prefix),
        candidate(filters.range_bytes(), scans.range, has_range),
    ]
}

/// Bytes of the filters that scans ask and that are wanted.
fn scan_bytes(tables: &KeyspaceTables, wanted: &[Wanted]) -> u64 {
    let bytes = |(live, wanted): (&Arc<LiveTable>, &Wanted)| {
        let filters = live.scan_filters();
        let prefix = if wanted.prefix { filters.prefix_bytes() } else { 0 };
        prefix + if wanted.range { filters.range_bytes() } else { 0 }
    };
    tables.tables().zip(wanted).map(bytes).sum()
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
