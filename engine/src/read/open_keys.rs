//! The keys of a chunk that are not yet looked up, and the tables of a run that may have them.

use std::sync::Arc;

use sievedb_filter::many::{self, Probe};
use sievedb_format::packed_keys::head;
use sievedb_sstable::FilterState;

use crate::{stats::LevelCounters, table::TableFilters, version::Run};

/// Minimum number of keys of a table for one call of its filter. Fewer do not saturate the memory:
/// their lines are prefetched together with those of other tables.
const GROUP_KEYS_MIN: usize = 16;

/// The keys of a chunk without a result. Its buffers are kept from chunk to chunk.
#[derive(Debug, Default)]
pub(super) struct OpenKeys {
    /// Positions of the keys in the chunk.
    places: Vec<u16>,
    /// Hashes of the keys.
    hashes: Vec<u64>,
    /// Results of the filters of a run.
    maybe: Vec<bool>,
    /// `true` for keys found in a table of the run.
    found: Vec<bool>,
    /// The tables of the run whose bounds contain open keys.
    groups: Vec<Group>,
    /// Keys of a group that passed its filter.
    passed: Vec<Passed>,
    /// Sort key of each key: the first eight bytes after the common prefix, its position and its
    /// hash.
    heads: Vec<(u64, u16, u64)>,
}

/// Open keys within the bounds of a table, neighbors in key order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Index of the table in its run.
    pub(super) table: usize,
    first: usize,
    end: usize,
}

/// A key that passed the filter of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// Index among the open keys.
    pub(super) index: usize,
    /// Position in the chunk.
    pub(super) place: usize,
}

/// Next step for a key that passed the filter of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The table is searched.
    Searched,
    /// The table has no relevant version; later runs may have one.
    Open,
    /// The key has no value in any run.
    Found,
}

impl OpenKeys {
    /// Opens all keys of a chunk, given their hashes.
    pub(super) fn begin(&mut self, hashes: impl Iterator<Item = u64>) {
        self.hashes.clear();
        self.hashes.extend(hashes);
        self.places.clear();
        debug_assert!(self.hashes.len() <= usize::from(u16::MAX), "places have 16 bits");
        self.places.extend((0..self.hashes.len()).map(|place| place as u16));
    }

    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Keeps the keys for which `stays` returns `true`, given position and hash.
    #[inline]
    pub(super) fn retain(&mut self, mut stays: impl FnMut(usize, u64) -> bool) {
        debug_assert_eq!(self.places.len(), self.hashes.len());
        let mut kept = 0;
        for at in 0..self.places.len() {
            let (place, hash) = (self.places[at], self.hashes[at]);
            (self.places[kept], self.hashes[kept]) = (place, hash);
            kept += usize::from(stays(usize::from(place), hash));
        }
        self.places.truncate(kept);
        self.hashes.truncate(kept);
    }

    /// Sorts the open keys; `keys` are those of the chunk.
    ///
    /// Compares the first eight bytes after the common prefix as one number, and whole keys only if
    /// these are equal. Takes 10 ns per key, 2 ns for sorted keys.
    pub(super) fn sort(&mut self, keys: &[&[u8]]) {
        let Self { places, hashes, heads, .. } = self;
        debug_assert_eq!(places.len(), hashes.len());
        let key_at = |place: u16| keys[usize::from(place)];
        if places.is_sorted_by(|a, b| key_at(*a) <= key_at(*b)) {
            return;
        }
        let Some(&first) = places.first() else { return };
        let mut common = key_at(first);
        for &place in &*places {
            let key = key_at(place);
            if !key.starts_with(common) {
                let equal = common.iter().zip(key).take_while(|(a, b)| a == b).count();
                common = &common[..equal];
            }
        }
        heads.clear();
        let head_at = |place| head(&key_at(place)[common.len()..]);
        heads.extend(places.iter().zip(&*hashes).map(|(&at, &hash)| (head_at(at), at, hash)));
        heads.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key_at(a.1).cmp(key_at(b.1))));
        for ((sorted, place), hash) in heads.iter().zip(&mut *places).zip(hashes) {
            (*place, *hash) = (sorted.1, sorted.2);
        }
        debug_assert!(places.is_sorted_by(|a, b| key_at(*a) <= key_at(*b)));
    }

    /// Divides the open keys, which are sorted, among the tables of a run.
    pub(super) fn group(&mut self, run: &Run, filters: &[Arc<TableFilters>], keys: &[&[u8]]) {
        let Self { places, hashes, groups, .. } = self;
        debug_assert_eq!(run.tables().len(), filters.len());
        groups.clear();
        let key_at = |at: u16| keys[usize::from(at)];
        let mut at = 0;
        while let Some(&place) = places.get(at) {
            let Some(table) = run.first_not_before(key_at(place)) else { break };
            let meta = &run.tables()[table].meta;
            let is_before = |&at: &u16| meta.bounds.starts_above(key_at(at));
            let first = at + doubling_partition_point(&places[at..], is_before);
            let is_within = |&at: &u16| !meta.bounds.ends_below(key_at(at));
            let end = first + doubling_partition_point(&places[first..], is_within);
            if end - first < GROUP_KEYS_MIN {
                for &hash in &hashes[first..end] {
                    filters[table].prefetch(Probe::new(hash));
                }
            }
            if first < end {
                groups.push(Group { table, first, end });
            }
            debug_assert!(at < end, "a key that is not behind a table is before or in it");
            at = end;
        }
    }

    /// Probes the filters of a run for the keys of each group.
    pub(super) fn probe(&mut self, filters: &[Arc<TableFilters>], counters: &LevelCounters) {
        let Self { places, hashes, maybe, found, groups, .. } = self;
        found.clear();
        found.resize(places.len(), false);
        // Keys outside of all groups are not read.
        maybe.resize(places.len(), true);
        debug_assert!(groups.last().is_none_or(|group| group.end <= places.len()));
        debug_assert!(groups.is_sorted_by(|a, b| a.table < b.table && a.end <= b.first));
        for &Group { table, first, end } in &*groups {
            let (hashes, maybe) = (&hashes[first..end], &mut maybe[first..end]);
            let keys = hashes.len();
            match &*filters[table].point {
                FilterState::Resident(filter) => {
                    if keys < GROUP_KEYS_MIN {
                        for (&hash, maybe) in hashes.iter().zip(&mut *maybe) {
                            *maybe = many::may_contain(filter, Probe::new(hash));
                        }
                    } else {
                        filter.may_contain_hashes(hashes, maybe);
                    }
                    let negatives = maybe.iter().filter(|maybe| !**maybe).count();
                    let expected_fpr = filters[table].point.expected_fpr.unwrap_or(1.0);
                    counters.add_negatives(negatives as u64, expected_fpr);
                }
                FilterState::Unusable(_) => {
                    maybe.fill(true);
                    counters.filter_unusable.add(keys as u64);
                }
                FilterState::NotResident => {
                    maybe.fill(true);
                    counters.filter_not_resident.add(keys as u64);
                }
                FilterState::None => maybe.fill(true),
            }
        }
    }

    /// Decides, by the position in the chunk, about each key of the group that passed the filter.
    pub(super) fn decide(&mut self, group: usize, mut fate: impl FnMut(usize) -> Fate) {
        let Self { places, maybe, found, groups, .. } = self;
        let Group { first, end, .. } = groups[group];
        for index in first..end {
            if !maybe[index] {
                continue;
            }
            let fate = fate(places[index].into());
            maybe[index] = fate == Fate::Searched;
            found[index] = fate == Fate::Found;
        }
    }

    /// Returns the keys of the group that passed the filter, and a flag for each open key, which
    /// the caller sets if the key was found.
    pub(super) fn passed(&mut self, group: usize) -> (&[Passed], &mut [bool]) {
        let Self { places, maybe, found, groups, passed, .. } = self;
        let Group { first, end, .. } = groups[group];
        debug_assert!(first < end && end <= places.len());
        debug_assert!(maybe.len() >= end && found.len() == places.len(), "filters were probed");
        passed.clear();
        let passing = (first..end).filter(|&index| maybe[index]);
        passed.extend(passing.map(|index| Passed { index, place: places[index].into() }));
        (passed, found)
    }

    /// Removes the keys that were found.
    pub(super) fn drop_found(&mut self) {
        debug_assert_eq!(self.places.len(), self.found.len());
        let found = std::mem::take(&mut self.found);
        let mut at = 0;
        self.retain(|_, _| {
            at += 1;
            !found[at - 1]
        });
        debug_assert_eq!(at, found.len());
        self.found = found;
    }
}

/// As [`partition_point`](slice::partition_point), for a point near the beginning: takes twice the
/// logarithm of its index in steps.
fn doubling_partition_point<T>(slice: &[T], is_first: impl Fn(&T) -> bool) -> usize {
    let mut step = 1;
    while step <= slice.len() && is_first(&slice[step - 1]) {
        step *= 2;
    }
    // All elements below are among the first ones, and the one at `step - 1` is not.
    let known = step / 2;
    let end = slice.len().min(step);
    known + slice[known..end].partition_point(is_first)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn sorting_keeps_keys_and_hashes_together(keys in vec("[ab]{0,12}", 0..40)) {
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            let mut open = OpenKeys::default();
            open.begin((0..keys.len() as u64).map(|place| place + 1000));
            open.sort(&keys);
            let places = &mut open.places;
            prop_assert!(places.is_sorted_by_key(|&place| keys[usize::from(place)]));
            let mut pairs = places.iter().zip(&open.hashes);
            prop_assert!(pairs.all(|(&place, &hash)| hash == u64::from(place) + 1000));
            places.sort_unstable();
            prop_assert!(places.iter().copied().eq(0..keys.len() as u16));
        }

        #[test]
        fn a_doubling_search_finds_the_partition_point(first in 0..70_usize, rest in 0..70_usize) {
            let all: Vec<usize> = (0..first + rest).collect();
            let found = doubling_partition_point(&all, |&number| number < first);
            prop_assert_eq!(found, first);
        }
    }
}
