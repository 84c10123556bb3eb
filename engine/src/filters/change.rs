//! Changes filters in memory, one after another, always within a bound.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    memory::{self, FilterMemory},
    step::{Step, fitting, step},
    tables::{FilterTables, Target},
};
use crate::{
    listener::Event,
    read::tree::Tree,
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        thread,
    },
    table::{ScanFilters, TableFilters, scan_filters::ScanRoles, store::TableStore},
};

/// Interval between two checks for a freed filter.
pub(super) const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Maximum wait for lookups that hold a filter whose room is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Some milliseconds: the duration of a lookup that reads from a disk.
    Short,
    /// One second. Bounded, because the lookup may be that of the caller.
    Long,
}

impl Patience {
    fn polls(self) -> Polls {
        let max = match self {
            Self::Short => 200,
            Self::Long => 20_000,
        };
        Polls { max, left: max }
    }
}

/// Polls available for lookups. All waits for the same lookup share them, so a lookup that holds
/// filters for long is waited for once.
#[derive(Debug)]
struct Polls {
    max: u64,
    left: u64,
}

impl Polls {
    /// Takes a poll, if one is left.
    fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// Restores all polls, when there is no lookup to wait for.
    fn renew(&mut self) {
        self.left = self.max;
    }
}

/// A filter that could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Index of the keyspace.
    keyspace: usize,
    table_id: u64,
    reason: String,
}

impl Unreadable {
    pub(super) fn new(target: &Target, reason: String) -> Self {
        Self { keyspace: target.keyspace, table_id: target.live.meta.id, reason }
    }

    /// Returns the event that reports the filter. `tables` contain its keyspace.
    pub(super) fn event(&self, tables: &FilterTables) -> Event {
        let Self { keyspace, table_id, ref reason } = *self;
        let keyspace = tables.keyspaces[keyspace].name.clone();
        Event::FilterUnusable { keyspace, table_id, reason: reason.clone() }
    }
}

/// Changes filters within a bound.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    store: &'a TableStore,
    /// Bound of the filters of the store, in bytes. The current filters may exceed it.
    bytes_max: u64,
    polls: Polls,
    /// Number of threads for which a wait aborts.
    waiters: Option<&'a AtomicU32>,
    keyspaces: Vec<Held<'a>>,
    /// Replaced filters that a lookup may hold, with keyspace and bytes.
    replaced: Vec<(usize, u64, Weak<TableFilters>)>,
    /// Bytes read from files.
    pub(super) bytes_loaded: u64,
    pub(super) unreadable: Vec<Unreadable>,
    /// Something was left undone for lack of room.
    pub(super) is_stuck: bool,
}

/// Filters of a keyspace under change.
#[derive(Debug)]
struct Held<'a> {
    tree: Option<&'a Tree>,
    bytes_max: u64,
    bytes: u64,
    /// Bytes before any change.
    bytes_before: u64,
    /// The view has replaced filters.
    is_stale: bool,
}

impl<'a> Changes<'a> {
    pub(super) fn new(
        tables: &'a FilterTables,
        store: &'a TableStore,
        bytes_max: u64,
        patience: Patience,
    ) -> Self {
        let held = tables.keyspaces.iter().map(|keyspace| {
            let bytes = keyspace.filter_bytes();
            Held {
                tree: keyspace.tree.as_deref(),
                bytes_max: keyspace.policy.memory_bytes_max.unwrap_or(u64::MAX),
                bytes,
                bytes_before: bytes,
                is_stale: false,
            }
        });
        Self {
            store,
            bytes_max,
            polls: patience.polls(),
            waiters: None,
            keyspaces: held.collect(),
            replaced: Vec::new(),
            bytes_loaded: 0,
            unreadable: Vec::new(),
            is_stuck: false,
        }
    }

    /// Skips waits for lookups while there are `waiters`.
    pub(super) fn aborting_for(self, waiters: &'a AtomicU32) -> Self {
        Self { waiters: Some(waiters), ..self }
    }

    /// Drops the excess over the targets: whole filters, then columns. Without room for a smaller
    /// copy beside the larger one, drops the filter, and [`load`](Self::load) reloads the columns.
    pub(super) fn shrink(&mut self, targets: &[Target]) {
        let mut shrinks = Vec::new();
        for target in targets {
            let scan_filters = target.live.scan_filters();
            if let Some(without) = scan_filters.without_others(target.scan_filters) {
                self.replace_scan_filters(target, &scan_filters, without);
            }
            drop(scan_filters);
            let filters = target.live.filters();
            match step(&filters, target.residence) {
                Step::Drop => self.replace(target, &filters, filters.dropped()),
                Step::Shrink(columns) => {
                    shrinks.push((filters.point.memory_bytes(), columns, target));
                }
                Step::Keep | Step::Load(_) => {}
            }
        }
        // Small filters first: they free the room for copies of large ones.
        shrinks.sort_by_key(|&(bytes, _, target)| (bytes, target.live.meta.id));
        for (_, columns, target) in shrinks {
            let filters = target.live.filters();
            let bytes = filters.memory_bytes_at(columns);
            let has_room = self.make_room(target.keyspace, bytes, Self::room_of_before);
            let shrunk = if has_room { filters.shrunk(columns) } else { None };
            let smaller = shrunk.unwrap_or_else(|| filters.dropped());
            self.replace(target, &filters, smaller);
        }
        self.release();
    }

    /// Loads missing parts of the targets, small filters first, as far as there is room. Stops
    /// after `bytes_max` bytes. Returns `true` if it did not stop early.
    pub(super) fn load<'t>(
        &mut self,
        targets: impl IntoIterator<Item = &'t Target>,
        bytes_max: u64,
    ) -> bool {
        let mut loads = Vec::new();
        let mut is_all = true;
        for target in targets {
            is_all &= self.bytes_loaded < bytes_max;
            if is_all {
                self.load_scan_filters(target);
            }
            let filters = target.live.filters();
            if let Step::Load(columns) = step(&filters, target.residence) {
                loads.push((filters.memory_bytes_at(columns), columns, target));
            }
        }
        loads.sort_by_key(|&(bytes, _, target)| (bytes, target.live.meta.id));
        for (bytes, columns, target) in loads {
            if self.bytes_loaded >= bytes_max {
                is_all = false;
                break;
            }
            let columns = if self.make_room(target.keyspace, bytes, Self::room)
                || self.makes_room_itself(target, bytes)
            {
                Some(columns)
            } else {
                self.is_stuck = true;
                let (filters, room) = (target.live.filters(), self.room(target.keyspace));
                memory::expect(self.store, room);
                fitting(&filters, columns, room)
            };
            if let Some(columns) = columns {
                self.load_table(target, columns);
            }
        }
        self.refresh();
        is_all
    }

    /// Drops filters, the last ones first, until the targets take at most `bytes_max` bytes,
    /// without those held by lookups. A plan only estimates bytes.
    pub(super) fn drop_beyond(&mut self, targets: &[Target], bytes_max: u64) {
        let held = |changes: &Self| {
            let all: u64 = changes.keyspaces.iter().map(|held| held.bytes).sum();
            let replaced: u64 = changes.replaced.iter().map(|&(_, bytes, _)| bytes).sum();
            all - replaced + FilterMemory::of(changes.store).unreclaimable_bytes()
        };
        for target in targets.iter().rev() {
            if held(self) <= bytes_max {
                break;
            }
            let scan_filters = target.live.scan_filters();
            if let Some(without) = scan_filters.without_others(ScanRoles::NONE) {
                self.replace_scan_filters(target, &scan_filters, without);
            }
            drop(scan_filters);
            let filters = target.live.filters();
            if filters.point.resident().is_some() {
                self.replace(target, &filters, filters.dropped());
                drop(filters);
                self.release();
            }
        }
    }

    /// Drops the filter of `target` if that makes room for its successor of `bytes` bytes. Returns
    /// `true` if there is room.
    fn makes_room_itself(&mut self, target: &Target, bytes: u64) -> bool {
        let filters = target.live.filters();
        let found = filters.point.memory_bytes() as u64;
        let freed = FilterMemory::of(self.store).freed_by(found);
        if found == 0 || self.room(target.keyspace) + freed < bytes {
            return false;
        }
        self.replace(target, &filters, filters.dropped());
        drop(filters);
        self.make_room(target.keyspace, bytes, Self::room)
    }

    fn load_table(&mut self, target: &Target, columns: f64) {
        let filters = &target.live.filters();
        let loaded = filters.loaded(columns);
        if let Some(reason) = filters.damage() {
            self.unreadable.push(Unreadable::new(target, reason.to_owned()));
        } else if loaded.is_none() {
            // Otherwise the filter would stay in its file.
            self.is_stuck = true;
        }
        if let Some(loaded) = loaded {
            self.bytes_loaded += loaded.memory_bytes() as u64;
            self.replace(target, filters, loaded);
            self.store.fit_cache();
        }
    }

    /// Loads prefix and range filters of the target, as far as there is room.
    fn load_scan_filters(&mut self, target: &Target) {
        let filters = target.live.scan_filters();
        let mut promised = 0;
        let (loaded, is_all) = filters.loaded(&target.live, target.scan_filters, |bytes| {
            let has_room = self.make_room(target.keyspace, promised + bytes, Self::room);
            promised += if has_room { bytes } else { 0 };
            has_room
        });
        self.is_stuck |= !is_all;
        let Some(loaded) = loaded else { return };
        self.bytes_loaded += (loaded.memory_bytes() - filters.memory_bytes()) as u64;
        if let Some(reason) = loaded.unusable() {
            self.unreadable.push(Unreadable::new(target, reason));
        }
        self.replace_scan_filters(target, &filters, loaded);
    }

    /// Installs `new`. No view holds the old filters, so scans free them soon.
    fn replace_scan_filters(&mut self, target: &Target, old: &ScanFilters, new: ScanFilters) {
        let held = &mut self.keyspaces[target.keyspace];
        debug_assert!(held.bytes >= old.memory_bytes() as u64, "they are counted");
        debug_assert_eq!(old.range_place, new.range_place, "only the part in memory changes");
        held.bytes = held.bytes + new.memory_bytes() as u64 - old.memory_bytes() as u64;
        target.live.set_scan_filters(new);
    }

    fn replace(&mut self, target: &Target, old: &Arc<TableFilters>, new: TableFilters) {
        debug_assert_eq!(old.place, new.place, "only the part in memory changes");
        let held = &mut self.keyspaces[target.keyspace];
        debug_assert!(held.bytes >= old.memory_bytes() as u64, "it is counted");
        held.bytes += new.memory_bytes() as u64;
        held.is_stale = true;
        self.replaced.push((target.keyspace, old.memory_bytes() as u64, Arc::downgrade(old)));
        target.live.set_filters(new);
    }

    /// Returns the bytes that may be added to the filters of a keyspace.
    fn room(&self, keyspace: usize) -> u64 {
        // Other stores of the pool load filters too.
        let bytes_max = self.bytes_max.min(self.store.memory.filter_bytes_max());
        let of_store = FilterMemory::of(self.store).room(bytes_max);
        let Held { bytes, bytes_max, .. } = self.keyspaces[keyspace];
        of_store.min(bytes_max.saturating_sub(bytes))
    }

    /// As [`room`](Self::room). If the bound of the keyspace is lower than its previous bytes, the
    /// latter count.
    fn room_of_before(&self, keyspace: usize) -> u64 {
        let of_store = FilterMemory::of(self.store).room(self.bytes_max);
        let Held { bytes, bytes_max, bytes_before, .. } = self.keyspaces[keyspace];
        of_store.min(bytes_max.max(bytes_before).saturating_sub(bytes))
    }

    /// Returns `true` if `room` is at least `bytes`, after a wait for lookups. If so, a filter of
    /// `bytes` bytes must be loaded next.
    fn make_room(&mut self, keyspace: usize, bytes: u64, room: fn(&Self, usize) -> u64) -> bool {
        let has_room = room(self, keyspace) >= bytes || {
            self.release();
            room(self, keyspace) >= bytes
        };
        if has_room {
            memory::expect(self.store, bytes);
        }
        has_room
    }

    /// Makes lookups use the current filters.
    fn refresh(&mut self) {
        for held in &mut self.keyspaces {
            if std::mem::take(&mut held.is_stale)
                && let Some(tree) = held.tree
            {
                tree.refresh_filters();
            }
        }
    }

    /// Makes lookups use the current filters, and waits for those that hold replaced ones.
    fn release(&mut self) {
        self.refresh();
        for poll in 0_u64.. {
            let keyspaces = &mut self.keyspaces;
            self.replaced.retain(|(keyspace, bytes, filters)| {
                let is_held = filters.strong_count() > 0;
                if !is_held {
                    let held = &mut keyspaces[*keyspace].bytes;
                    debug_assert!(*held >= *bytes, "it was counted");
                    *held -= bytes;
                }
                is_held
            });
            if self.replaced.is_empty() {
                self.polls.renew();
                return;
            }
            let has_waiters = self.waiters.is_some_and(|waiters| waiters.load(SeqCst) > 0);
            if has_waiters || !self.polls.take() {
                return;
            }
            // Most lookups end at once.
            if poll < 10 { thread::yield_now() } else { thread::sleep(POLL_INTERVAL) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Patience;

    #[test]
    fn a_lookup_that_holds_filters_is_waited_for_once() {
        for patience in [Patience::Short, Patience::Long] {
            let mut polls = patience.polls();
            let max = polls.max;
            // Each replaced filter needs room of its own.
            let taken: u64 =
                (0..50).map(|_| (0..).take_while(|_: &u64| polls.take()).count() as u64).sum();
            assert_eq!(taken, max);
            polls.renew();
            assert!(polls.take(), "another lookup is waited for");
        }
    }
}
