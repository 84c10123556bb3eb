//! Filters take the place of others, one after the other, and never more of them are in memory at a
//! time than a bound allows.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::filter_tables::{FilterTables, Target};
use crate::{
    filters::plan::Residence,
    read::tree::Tree,
    sync::{
        atomic::{AtomicU32, Ordering::SeqCst},
        thread,
    },
    table::{LiveTable, ScanFilters, TableFilters, scan_filters::Wanted, store::TableStore},
};

/// How often is looked whether a filter is freed.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// How long to wait for a lookup that holds a filter whose room is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Some milliseconds each time: lookups last that long if they read from a disk.
    Short,
    /// Some seconds in all. Not for ever: the lookup may be that of the caller, whose closure is
    /// still to return.
    Long,
}

impl Patience {
    /// How often to look, each time and in all.
    fn looks(self) -> (u64, u64) {
        match self {
            Self::Short => (200, u64::MAX),
            Self::Long => (20_000, 20_000),
        }
    }
}

/// What is to be done with the filter of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Keep,
    Drop,
    /// To so many columns, in memory.
    Shrink(f64),
    /// So many columns, or all of a filter without columns, from the file.
    Load(f64),
}

/// A filter that could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// Index of the keyspace.
    pub(super) keyspace: usize,
    pub(super) table_id: u64,
    pub(super) reason: String,
}

/// Changes filters within a bound.
#[derive(Debug)]
pub(super) struct Changes<'a> {
    store: &'a TableStore,
    /// For the filters of the store, in bytes. More may be there already.
    bytes_max: u64,
    /// How often to look for lookups that let go, each time.
    looks_max: u64,
    /// The same in all, from now on.
    looks_left: u64,
    /// Threads for which to wait no longer.
    waiters: Option<&'a AtomicU32>,
    keyspaces: Vec<Held<'a>>,
    /// Filters that were replaced, until no lookup holds them: keyspace and bytes.
    replaced: Vec<(usize, u64, Weak<TableFilters>)>,
    /// Bytes of what was read from files.
    pub(super) bytes_loaded: u64,
    pub(super) unreadable: Vec<Unreadable>,
    /// Whether something was left undone for want of room.
    pub(super) is_stuck: bool,
}

/// What a keyspace holds.
#[derive(Debug)]
struct Held<'a> {
    tree: Option<&'a Tree>,
    bytes_max: u64,
    bytes: u64,
    /// Before anything was changed.
    bytes_before: u64,
    /// Whether its view has filters that were replaced.
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
        let (looks_max, looks_left) = patience.looks();
        Self {
            store,
            bytes_max,
            looks_max,
            looks_left,
            waiters: None,
            keyspaces: held.collect(),
            replaced: Vec::new(),
            bytes_loaded: 0,
            unreadable: Vec::new(),
            is_stuck: false,
        }
    }

    /// Waits for no lookup while `waiters` is not 0.
    pub(super) fn aborting_for(self, waiters: &'a AtomicU32) -> Self {
        Self { waiters: Some(waiters), ..self }
    }

    /// Takes from memory what the targets do not want: whole filters, then columns. Where there is
    /// no room for a smaller copy beside the larger one, the filter goes; [`load`](Self::load)
    /// brings the columns back.
    pub(super) fn give_up(&mut self, targets: &[Target]) {
        let mut shrinks = Vec::new();
        for target in targets {
            let scan_filters = target.live.scan_filters();
            if let Some(without) = scan_filters.without_unwanted(target.wanted) {
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
        // Small ones first: what they free makes room for the copies of the large ones.
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

    /// Reads what the targets want and memory lacks, small filters first, as far as there is room
    /// and until `bytes_max` bytes were read. Whether that was all.
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
                self.store.expect_filter(room);
                fitting(&filters, columns, room)
            };
            if let Some(columns) = columns {
                self.load_table(target, columns);
            }
        }
        self.refresh();
        is_all
    }

    /// Takes filters from memory, the last ones first, until all that these targets have is
    /// `bytes_max` or less, once lookups have let go of what was replaced: a plan knows their bytes
    /// but nearly.
    pub(super) fn drop_beyond(&mut self, targets: &[Target], bytes_max: u64) {
        let held = |changes: &Self| {
            let all: u64 = changes.keyspaces.iter().map(|held| held.bytes).sum();
            let replaced: u64 = changes.replaced.iter().map(|&(_, bytes, _)| bytes).sum();
            all - replaced + changes.store.filter_memory().unreclaimable_bytes()
        };
        for target in targets.iter().rev() {
            if held(self) <= bytes_max {
                break;
            }
            let scan_filters = target.live.scan_filters();
            let none = Wanted { prefix: false, range: false };
            if let Some(without) = scan_filters.without_unwanted(none) {
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

    /// Takes the filter of `target` from memory if that makes room for so many bytes: one that is
    /// larger than what is left over has to go before its successor is made. Whether there is room.
    fn makes_room_itself(&mut self, target: &Target, bytes: u64) -> bool {
        let filters = target.live.filters();
        let found = filters.point.memory_bytes() as u64;
        let freed = self.store.filter_memory().freed_by(found);
        if found == 0 || self.room(target.keyspace) + freed < bytes {
            return false;
        }
        self.replace(target, &filters, filters.dropped());
        drop(filters);
        self.make_room(target.keyspace, bytes, Self::room)
    }

    fn load_table(&mut self, target: &Target, columns: f64) {
        let filters = &target.live.filters();
        if let Some(loaded) = filters.loaded(columns) {
            self.bytes_loaded += loaded.memory_bytes() as u64;
            self.replace(target, filters, loaded);
            self.store.fit_cache();
        }
        if let Some(reason) = filters.damage() {
            let (keyspace, table_id) = (target.keyspace, target.live.meta.id);
            let reason = reason.to_owned();
            self.unreadable.push(Unreadable { keyspace, table_id, reason });
        }
    }

    /// Loads the filters that scans ask, as far as the target wants them and there is room.
    fn load_scan_filters(&mut self, target: &Target) {
        let filters = target.live.scan_filters();
        let mut asked_bytes = 0;
        let (loaded, is_all) = filters.loaded(&target.live, target.wanted, |bytes| {
            // Those of one table come together.
            let has_room = self.make_room(target.keyspace, asked_bytes + bytes, Self::room);
            asked_bytes += if has_room { bytes } else { 0 };
            has_room
        });
        self.is_stuck |= !is_all;
        let Some(loaded) = loaded else { return };
        self.bytes_loaded += (loaded.memory_bytes() - filters.memory_bytes()) as u64;
        if let Some(reason) = loaded.unusable() {
            let (keyspace, table_id) = (target.keyspace, target.live.meta.id);
            self.unreadable.push(Unreadable { keyspace, table_id, reason });
        }
        self.replace_scan_filters(target, &filters, loaded);
    }

    /// No view holds them: the old ones are free when the scans that ask them now have their
    /// answers.
    fn replace_scan_filters(&mut self, target: &Target, old: &ScanFilters, new: ScanFilters) {
        let held = &mut self.keyspaces[target.keyspace];
        held.bytes = held.bytes + new.memory_bytes() as u64 - old.memory_bytes() as u64;
        target.live.set_scan_filters(new);
    }

    fn replace(&mut self, target: &Target, old: &Arc<TableFilters>, new: TableFilters) {
        let (index, live) = (target.keyspace, &target.live);
        let held = &mut self.keyspaces[index];
        held.bytes += new.memory_bytes() as u64;
        held.is_stale = true;
        self.replaced.push((index, old.memory_bytes() as u64, Arc::downgrade(old)));
        LiveTable::set_filters(live, new);
    }

    /// What may be added to the filters of a keyspace, in bytes.
    fn room(&self, keyspace: usize) -> u64 {
        // Other stores of the pool load filters, too.
        let bytes_max = self.bytes_max.min(self.store.memory.filter_bytes_max());
        let of_store = self.store.filter_memory().room(bytes_max);
        let Held { bytes, bytes_max, .. } = self.keyspaces[keyspace];
        of_store.min(bytes_max.saturating_sub(bytes))
    }

    /// The same for a keyspace that may have as many as it had before, if its bound was cut
    /// meanwhile.
    fn room_of_before(&self, keyspace: usize) -> u64 {
        let of_store = self.store.filter_memory().room(self.bytes_max);
        let Held { bytes, bytes_max, bytes_before, .. } = self.keyspaces[keyspace];
        of_store.min(bytes_max.max(bytes_before).saturating_sub(bytes))
    }

    /// Whether `room` is `bytes` or more, once lookups have let go of what was replaced. A filter
    /// of so many bytes is loaded then.
    fn make_room(&mut self, keyspace: usize, bytes: u64, room: fn(&Self, usize) -> u64) -> bool {
        let has_room = room(self, keyspace) >= bytes || {
            self.release();
            room(self, keyspace) >= bytes
        };
        if has_room {
            self.store.expect_filter(bytes);
        }
        has_room
    }

    /// Lets lookups use what is there now.
    fn refresh(&mut self) {
        for held in &mut self.keyspaces {
            if std::mem::take(&mut held.is_stale)
                && let Some(tree) = held.tree
            {
                tree.refresh_filters();
            }
        }
    }

    /// Lets lookups use what is there now, and waits until those in flight have let go of the rest.
    pub(super) fn release(&mut self) {
        self.refresh();
        for look in 0..self.looks_max {
            let keyspaces = &mut self.keyspaces;
            self.replaced.retain(|(keyspace, bytes, filters)| {
                let is_held = filters.strong_count() > 0;
                if !is_held {
                    keyspaces[*keyspace].bytes -= bytes;
                }
                is_held
            });
            if self.replaced.is_empty() {
                return;
            }
            let others_wait = self.waiters.is_some_and(|waiters| waiters.load(SeqCst) > 0);
            if self.looks_left == 0 || others_wait {
                return;
            }
            self.looks_left -= 1;
            // Most lookups are done at once.
            if look < 10 { thread::yield_now() } else { thread::sleep(LOOK_INTERVAL) }
        }
    }
}

/// What is to be done with a table that has `filters`. Pure.
pub(super) fn step(filters: &TableFilters, target: Residence) -> Step {
    let is_resident = filters.point.resident().is_some();
    let columns = match target {
        Residence::Nothing if is_resident => return Step::Drop,
        Residence::Nothing => return Step::Keep,
        Residence::Columns(columns) => columns,
        Residence::Whole => f64::INFINITY,
    };
    let wanted = filters.memory_bytes_at(columns);
    let found = filters.point.memory_bytes() as u64;
    if !is_resident {
        return if filters.available().is_some() { Step::Load(columns) } else { Step::Keep };
    }
    match wanted.cmp(&found) {
        std::cmp::Ordering::Less => Step::Shrink(columns),
        std::cmp::Ordering::Equal => Step::Keep,
        std::cmp::Ordering::Greater => Step::Load(columns),
    }
}

/// As many of `columns` columns as fit into `room` bytes, if these are more than are in memory.
fn fitting(filters: &TableFilters, columns: f64, room: u64) -> Option<f64> {
    let (_, stored) = filters.available()?;
    let most = stored?.min(columns).floor() as u32; // A ribbon has few.
    let found = (1..=most).rev().map(f64::from).find(|&n| filters.memory_bytes_at(n) <= room)?;
    (filters.memory_bytes_at(found) > filters.point.memory_bytes() as u64).then_some(found)
}
