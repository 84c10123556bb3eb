//! What happens to filters when tables come and go, and when the store is opened.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Changes, FilterTables, KeyspaceTables, Patience, Prediction, Target, Unreadable,
    change::{Step, step},
    tell_unreadable,
};
use crate::{
    FilterRole,
    filter_policy::FilterPolicy,
    listener::EventListener,
    on_threads::on_threads,
    read::tree::Tree,
    store::Store,
    store::residency::MeasuredUse,
    sync::{MutexGuard, atomic::Ordering::SeqCst},
    table::{
        LiveTable, ScanFilters, TableFilters, filter_store::StoredAnew, scan_filters::Wanted,
        store::TableStore,
    },
    version::Version,
};

/// Loads the filters of a store that is being opened, as far as its budget allows. Each keyspace is
/// given with its id, name, policy and tables. Several threads read them, up to `threads`, if there
/// is room for all that the plan wants. Returns what the plan predicts.
pub(crate) fn load_filters<'a>(
    store: &TableStore,
    listener: Option<&dyn EventListener>,
    keyspaces: impl IntoIterator<Item = (u64, &'a str, FilterPolicy, &'a [(u8, u64, Arc<LiveTable>)])>,
    threads: usize,
) -> Prediction {
    let keyspaces = keyspaces.into_iter().map(|(id, name, policy, tables)| {
        let tables = tables.iter().map(|(level, run, live)| (*level, *run, live));
        KeyspaceTables::new(id, name, policy, tables)
    });
    let tables = FilterTables { keyspaces: keyspaces.collect() };
    let bytes_max = store.memory.filter_bytes_max();
    let measured = MeasuredUse::default();
    let (plan, targets) = tables.plan(store.filter_memory().planned(bytes_max), &measured);
    let mut unreadable = load_at_once(&tables, &targets, store, threads);
    let mut changes = Changes::new(&tables, store, bytes_max, Patience::Short);
    changes.load(&targets, u64::MAX);
    unreadable.append(&mut changes.unreadable);
    if let Some(listener) = listener {
        tell_unreadable(listener, &tables, unreadable);
    }
    Prediction::of(&tables, &plan, &measured)
}

/// This part of the room is left for what filters are rounded up to, and for a page of each chunk.
const ROUNDING_PART: u64 = 64;

/// Loads the point filters that `targets` want, on several threads, if all of them fit: then none
/// has to wait for room. Nothing is loaded if they do not, or if one thread is to do it. Those that
/// could not be read.
fn load_at_once(
    tables: &FilterTables,
    targets: &[Target],
    store: &TableStore,
    threads: usize,
) -> Vec<Unreadable> {
    let is_bounded = |it: &KeyspaceTables| it.policy.memory_bytes_max.is_some();
    if threads < 2 || tables.keyspaces.iter().any(is_bounded) {
        return Vec::new();
    }
    let mut loads = Vec::with_capacity(targets.len());
    let mut bytes = 0;
    for target in targets {
        let filters = target.live.filters();
        if let Step::Load(columns) = step(&filters, target.residence) {
            bytes += filters.memory_bytes_at(columns);
            loads.push((target, columns));
        }
        let scan_filters = target.live.scan_filters();
        let prefix = if target.wanted.prefix { scan_filters.prefix_bytes() } else { 0 };
        let range = if target.wanted.range { scan_filters.range_bytes() } else { 0 };
        bytes += prefix + range;
    }
    // Nothing is in the arena yet, so they lie one behind the other: each of them begins in the
    // page where another one ends. Other stores of the pool may open at the same time: counted
    // first, then compared.
    store.memory.expect_filters(store.filter_memory().bytes() + bytes);
    store.fit_cache();
    let room = store.filter_memory().room(store.memory.filter_bytes_max());
    if bytes > room - room / ROUNDING_PART {
        store.memory.expect_filters(0);
        return Vec::new();
    }
    store.expect_filter(bytes);
    // A piece of a file is on its way to each: nobody writes tables yet, and their part has room
    // for more.
    let loaded = on_threads(threads, &loads, |(target, columns)| {
        let filters = target.live.filters();
        if let Some(loaded) = filters.loaded(*columns) {
            target.live.set_filters(loaded);
        }
        Ok(filters.damage().map(str::to_owned))
    });
    store.memory.expect_filters(0);
    let damages = loaded.expect("a filter that cannot be read is no error").into_iter();
    let unreadable = damages.zip(&loads).filter_map(|(reason, (target, _))| {
        let (keyspace, table_id) = (target.keyspace, target.live.meta.id);
        reason.map(|reason| Unreadable { keyspace, table_id, reason })
    });
    unreadable.collect()
}

/// A filter of a table that is ready to take the place of another one.
///
/// As long as it lives no other change of filters is in flight, which would bring the old one back.
#[derive(Debug)]
pub(crate) struct Replacement<'a> {
    filters: NewFilters,
    live: &'a LiveTable,
    _change: MutexGuard<'a, MeasuredUse>,
}

/// The filters of a table, with the one that was rebuilt.
#[derive(Debug)]
enum NewFilters {
    Point(Box<TableFilters>),
    OfScans(ScanFilters),
}

impl Store {
    /// Loads the filters of `opened`, which are about to come to `tree` and make `version` of it.
    /// Others give up what the plan for that says; what is about to go away keeps its filters until
    /// it does. So there may be less room than the plan wants: `false` if
    /// [`fit_filters`](Self::fit_filters) should be called afterwards.
    pub(crate) fn admit_filters(
        &self,
        tree: &Arc<Tree>,
        version: &Version,
        opened: &[Arc<LiveTable>],
    ) -> bool {
        let mut measured = self.residency.lock_change();
        if self.versions.trees().of_id(tree.id).is_none() {
            // It was dropped meanwhile.
            return true;
        }
        let goal = self.filter_bytes_goal();
        let of_tree = KeyspaceTables::of_tree(tree, version);
        let bytes = opened.iter().map(|live| {
            let scan_filters = live.scan_filters();
            live.filters().memory_bytes_at(f64::INFINITY)
                + scan_filters.prefix_bytes()
                + scan_filters.range_bytes()
        });
        // Twice: a plan leaves as much as the largest filter for when that is replaced.
        let bytes = bytes.sum::<u64>().saturating_mul(2);
        let (tables, targets) = if self.residency.take_spare(bytes) {
            let tables = FilterTables { keyspaces: vec![of_tree] };
            let targets = self.plan_alone(&measured, &tables);
            (tables, targets)
        } else {
            let mut tables = self.filter_tables();
            tables.put(of_tree);
            let targets = self.plan_filters(&mut measured, &tables, goal);
            (tables, targets)
        };
        let new: BTreeSet<u64> = opened.iter().map(|live| live.meta.id).collect();
        let is_new = |target: &&Target| new.contains(&target.live.meta.id);
        let mut changes = Changes::new(&tables, &self.tables, goal, Patience::Short);
        changes.give_up(&targets);
        changes.load(targets.iter().filter(is_new), u64::MAX);
        let fits = !changes.is_stuck;
        self.tell_unreadable(&tables, changes.unreadable);
        fits
    }

    /// Makes a filter that was rebuilt, and lies in a file, ready to take the place of that of
    /// `live` for this role; none for `None`. It enters memory if there is room, and as far as the
    /// plan says by the background job.
    ///
    /// Waits for a change of filters that is in flight, which may take long, and reads the file. So
    /// it comes before the manifest is locked: the next segment of the log needs it, and all writes
    /// need that.
    pub(crate) fn prepare_filter<'a>(
        &'a self,
        tree: &Tree,
        live: &'a LiveTable,
        role: FilterRole,
        new: Option<StoredAnew>,
    ) -> Replacement<'a> {
        let change = self.residency.lock_change();
        let bytes_max = self.tables.memory.filter_bytes_max();
        let has_room = |bytes| {
            tree.filter_policy().memory_bytes_max.is_none()
                && self.tables.has_filter_room(bytes, bytes_max)
        };
        let (filters, scan_filters) = (live.filters(), live.scan_filters());
        let rebuilt = match (role, new) {
            (_, Some(StoredAnew::Point(place, stored))) => {
                let fits = has_room(stored.memory_bytes(f64::INFINITY));
                let rebuilt = filters.rebuilt(place, stored);
                let loaded = if fits { rebuilt.loaded(f64::INFINITY) } else { None };
                NewFilters::Point(Box::new(loaded.unwrap_or(rebuilt)))
            }
            (FilterRole::Point, _) => NewFilters::Point(Box::new(filters.without_point())),
            (_, Some(StoredAnew::Prefix(place, stored))) => NewFilters::OfScans(
                scan_filters.with_prefix_file(live, Some(Arc::new(place)), Some(Ok(stored))),
            ),
            (_, Some(StoredAnew::Range(place, stored))) => NewFilters::OfScans(
                scan_filters.with_range_file(live, Some(place), Some(Ok(stored))),
            ),
            (FilterRole::Prefix, None) => {
                NewFilters::OfScans(scan_filters.with_prefix_file(live, None, None))
            }
            (FilterRole::Range, None) => {
                NewFilters::OfScans(scan_filters.with_range_file(live, None, None))
            }
        };
        let filters = match rebuilt {
            NewFilters::OfScans(rebuilt) => {
                // What was not in memory before waits for the job.
                let wanted =
                    Wanted { prefix: role == FilterRole::Prefix, range: role == FilterRole::Range };
                let (loaded, _) = rebuilt.loaded(live, wanted, has_room);
                NewFilters::OfScans(loaded.unwrap_or(rebuilt))
            }
            point @ NewFilters::Point(_) => point,
        };
        Replacement { filters, live, _change: change }
    }

    /// Has `tree` ask the filter from now on.
    pub(crate) fn replace_filter(&self, tree: &Tree, replacement: Replacement<'_>) {
        let Replacement { filters, live, _change } = replacement;
        match filters {
            NewFilters::Point(filters) => {
                live.set_filters(*filters);
                tree.refresh_filters();
            }
            NewFilters::OfScans(filters) => live.set_scan_filters(filters),
        }
        self.residency.is_due.store(true, SeqCst);
    }

    /// Tables have come and gone, so there may be room.
    pub(crate) fn filters_have_room(&self) {
        if self.residency.wait_max().is_some() {
            self.residency.is_due.store(true, SeqCst);
        }
    }
}
