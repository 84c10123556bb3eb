//! Loads filters when the store is opened.

use std::sync::Arc;

use super::{
    Filters,
    change::{Changes, Patience, Unreadable},
    measured_use::MeasuredUse,
    memory::{self, FilterMemory},
    prediction::Prediction,
    step::{Step, step},
    tables::{FilterTables, KeyspaceTables, Target},
};
use crate::{
    filter_policy::FilterPolicy,
    listener::{EventListener, notify},
    memory::MemoryUse,
    on_threads::on_threads,
    table::{LiveTable, store::TableStore},
};

/// Divisor of the room that is reserved for rounding, and for a page of each chunk.
const ROUNDING_PART: u64 = 64;

impl Filters {
    /// Loads the filters of a store that is being opened, as far as its budget allows. Each
    /// keyspace has its id, name, policy, and tables with level and run. Up to `threads` threads
    /// read the filters if all planned filters fit.
    pub(crate) fn load<'a>(
        store: &TableStore,
        listener: Option<&dyn EventListener>,
        keyspaces: impl IntoIterator<
            Item = (u64, &'a str, FilterPolicy, &'a [(u8, u64, Arc<LiveTable>)]),
        >,
        threads: usize,
    ) -> Self {
        let keyspaces = keyspaces.into_iter().map(|(id, name, policy, tables)| {
            let tables = tables.iter().map(|(level, run, live)| (*level, *run, live));
            KeyspaceTables::new(id, name, policy, tables)
        });
        let tables = FilterTables { keyspaces: keyspaces.collect() };
        let bytes_max = store.memory.filter_bytes_max();
        memory::bound(store, bytes_max);
        let measured = MeasuredUse::default();
        let (plan, targets) = tables.plan(FilterMemory::of(store).planned(bytes_max), &measured);
        debug_assert!(targets.iter().all(|it| it.live.filters().memory_bytes() == 0), "all unread");
        let mut unreadable = load_at_once(&tables, &targets, store, threads);
        let mut changes = Changes::new(&tables, store, bytes_max, Patience::Short);
        let is_all = changes.load(&targets, u64::MAX);
        debug_assert!(is_all, "only bytes end a load");
        unreadable.append(&mut changes.unreadable);
        if let Some(listener) = listener {
            unreadable.iter().for_each(|it| notify(listener, &it.event(&tables)));
        }
        let limit = store.memory.limit(MemoryUse::Filters);
        Self::new(limit, Prediction::of(&tables, &plan, &measured))
    }
}

/// Loads the planned point filters on several threads if all of them fit, so that no thread waits
/// for room. Otherwise, or for one thread, loads nothing. Returns unreadable filters.
fn load_at_once(
    tables: &FilterTables,
    targets: &[Target],
    store: &TableStore,
    threads: usize,
) -> Vec<Unreadable> {
    if threads < 2 || tables.has_bound() {
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
        bytes += target.live.scan_filters().bytes_of(target.scan_filters);
    }
    // The arena is empty, so filters are adjacent: each begins in the page where another one ends.
    // Other stores of the pool may open at the same time: count, then compare.
    store.memory.expect_filters(FilterMemory::of(store).bytes() + bytes);
    store.fit_cache();
    let room = FilterMemory::of(store).room(store.memory.filter_bytes_max());
    if bytes > room - room / ROUNDING_PART {
        store.memory.expect_filters(0);
        return Vec::new();
    }
    memory::expect(store, bytes);
    // Each thread also holds a part of a file. No table is written yet, so its memory is free.
    let loaded = on_threads(threads, &loads, |(target, columns)| {
        let filters = target.live.filters();
        if let Some(loaded) = filters.loaded(*columns) {
            target.live.set_filters(loaded);
        }
        Ok(filters.damage().map(str::to_owned))
    });
    store.memory.expect_filters(0);
    let damages = loaded.expect("an unreadable filter is no error").into_iter();
    let unreadable = damages
        .zip(&loads)
        .filter_map(|(reason, (target, _))| reason.map(|reason| Unreadable::new(target, reason)));
    unreadable.collect()
}
