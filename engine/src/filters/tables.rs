//! All tables whose filters share a budget, in the order of the plan.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{
    FilterHost,
    measured_use::MeasuredUse,
    plan::{
        self, FilterPlan, KeyspaceShape, Residence, RunShape, StoreShape, StoredFilter, TableShape,
    },
    scan_choice::{Bound, Candidate, choose},
};
use crate::{
    filter_policy::FilterPolicy,
    read::tree::Tree,
    table::{LiveTable, TableFilters, TablePlace, scan_filters::ScanRoles},
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
    /// `None` while the store is opened.
    pub(super) tree: Option<Arc<Tree>>,
    /// Runs, newest first.
    runs: Vec<(TablePlace, Vec<Arc<LiveTable>>)>,
}

/// Planned part of the filters of a table in memory.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Index in [`FilterTables::keyspaces`].
    pub(super) keyspace: usize,
    pub(super) live: Arc<LiveTable>,
    /// Target of the point filter.
    pub(super) residence: Residence,
    pub(super) scan_filters: ScanRoles,
}

impl Target {
    /// Returns `true` if a prefix or range filter has no room.
    pub(super) fn lacks_scan_filters(&self) -> bool {
        let filters = self.live.scan_filters();
        filters.bytes_of(self.scan_filters) < filters.bytes_of(ScanRoles::ALL)
    }
}

impl KeyspaceTables {
    /// Creates the tables of a keyspace, with level and run of each.
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

    /// Creates the tables of `version`, the current or next one of `tree`.
    pub(super) fn of_tree(tree: &Arc<Tree>, version: &Version) -> Self {
        let tables = Self::new(tree.id, &tree.name(), tree.filter_policy(), version.tables());
        Self { tree: Some(Arc::clone(tree)), ..tables }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        self.runs.iter().flat_map(|(_, tables)| tables)
    }

    /// Returns the bytes of all point filters if they were whole.
    fn point_bytes(&self) -> u64 {
        self.tables().map(|live| live.filters().memory_bytes_at(f64::INFINITY)).sum()
    }

    /// Returns the bytes that the filters take.
    pub(super) fn filter_bytes(&self) -> u64 {
        let bytes_of = |live: &Arc<LiveTable>| {
            live.filters().memory_bytes() + live.scan_filters().memory_bytes()
        };
        self.tables().map(|live| bytes_of(live) as u64).sum()
    }
}

impl FilterTables {
    /// Collects the current tables of a store.
    pub(super) fn of(host: &impl FilterHost) -> Self {
        let of_tree = |tree: &Arc<Tree>| KeyspaceTables::of_tree(tree, &tree.kept_view().version);
        Self { keyspaces: host.keyspaces().iter().map(of_tree).collect() }
    }

    /// Replaces the tables of a keyspace. Returns `false` if it is not among them.
    pub(super) fn put(&mut self, tables: KeyspaceTables) -> bool {
        let present = self.keyspaces.iter_mut().find(|present| present.id == tables.id);
        present.map(|present| *present = tables).is_some()
    }

    /// Returns `true` if a keyspace has a bound of its own.
    pub(super) fn has_bound(&self) -> bool {
        self.keyspaces.iter().any(|it| it.policy.memory_bytes_max.is_some())
    }

    /// Returns the ids of keyspaces and their tables.
    pub(super) fn ids(&self) -> Vec<(u64, Vec<u64>)> {
        let ids = |keyspace: &KeyspaceTables| keyspace.tables().map(|live| live.meta.id).collect();
        self.keyspaces.iter().map(|keyspace| (keyspace.id, ids(keyspace))).collect()
    }

    /// Plans for a budget of `bytes_max` bytes. Returns a target for each table.
    pub(super) fn plan(&self, bytes_max: u64, measured: &MeasuredUse) -> (FilterPlan, Vec<Target>) {
        let scan_filters = self.scan_filters(bytes_max, measured);
        let plan = plan::plan(&self.shape(bytes_max, measured, &scan_filters));
        let planned = plan.keyspaces.iter().flat_map(|it| &it.runs).flat_map(|run| &run.tables);
        let tables = self.keyspaces.iter().enumerate();
        let tables = tables.flat_map(|(at, it)| it.tables().map(move |live| (at, live)));
        let targets = tables.zip(planned).zip(scan_filters);
        let targets = targets.map(|(((keyspace, live), planned), scan_filters)| {
            debug_assert_eq!(live.meta.id, planned.id, "the plan keeps the order");
            let (live, residence) = (Arc::clone(live), planned.residence);
            Target { keyspace, live, residence, scan_filters }
        });
        let targets = targets.collect();
        (plan, targets)
    }

    /// Chooses prefix and range filters for each table.
    fn scan_filters(&self, bytes_max: u64, measured: &MeasuredUse) -> Vec<ScanRoles> {
        let bound = |it: &KeyspaceTables| Bound {
            bytes_max: it.policy.memory_bytes_max.unwrap_or(u64::MAX),
            point_bytes: it.point_bytes(),
            lookups: measured.lookups(it.id),
        };
        let bounds: Vec<_> = self.keyspaces.iter().map(bound).collect();
        let store = Bound {
            bytes_max,
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
        let pairs = chosen.as_chunks().0.iter();
        pairs.map(|&[prefix, range]| ScanRoles { prefix, range }).collect()
    }

    /// Returns the input of the planner. Its bounds exclude the chosen `scan_filters`.
    fn shape(
        &self,
        bytes_max: u64,
        measured: &MeasuredUse,
        scan_filters: &[ScanRoles],
    ) -> StoreShape {
        let mut scan_filters = scan_filters.iter();
        let mut all_scan_bytes = 0;
        let keyspaces = self.keyspaces.iter().map(|it| {
            let chosen = it.tables().zip(scan_filters.by_ref());
            let bytes = chosen.map(|(live, &roles)| live.scan_filters().bytes_of(roles)).sum();
            all_scan_bytes += bytes;
            let bound = it.policy.memory_bytes_max;
            KeyspaceShape {
                policy: it.policy,
                filter_bytes_max: bound.map(|bytes_max| bytes_max.saturating_sub(bytes)),
                lookups: measured.lookups(it.id),
                runs: it.runs.iter().map(|run| run_shape(it.id, run, measured)).collect(),
            }
        });
        let keyspaces = keyspaces.collect();
        let bound = Some(bytes_max).filter(|&bytes| bytes < u64::MAX);
        let filter_bytes_max = bound.map(|bytes| bytes.saturating_sub(all_scan_bytes));
        StoreShape { filter_bytes_max, keyspaces }
    }
}

/// Returns the prefix and range filter of a table with this share of the keys of its run.
fn scan_candidates(
    keyspace: usize,
    live: &LiveTable,
    share: f64,
    measured: &MeasuredUse,
) -> [Candidate; 2] {
    let (filters, scans) = (live.scan_filters(), measured.scans_of(live.meta.id));
    let candidate =
        |bytes, scans, is_resident| Candidate { keyspace, bytes, share, scans, is_resident };
    let has_range = filters.range().resident().is_some();
    [
        candidate(filters.prefix_bytes(), scans.prefix, filters.has_prefix()),
        candidate(filters.range_bytes(), scans.range, has_range),
    ]
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

/// Returns the stored filter that can be loaded.
pub(super) fn stored_filter(filters: &TableFilters) -> Option<StoredFilter> {
    let (kind, columns) = filters.available()?;
    let whole_bytes = filters.memory_bytes_at(f64::INFINITY);
    Some(StoredFilter { kind, columns: columns.unwrap_or(0.0), whole_bytes })
}

/// Returns the part in memory.
fn residence(filters: &TableFilters) -> Residence {
    if filters.point.resident().is_none() {
        return Residence::Nothing;
    }
    match filters.resident_columns() {
        Some(columns) if !filters.is_whole() => Residence::Columns(columns),
        _ => Residence::Whole,
    }
}
