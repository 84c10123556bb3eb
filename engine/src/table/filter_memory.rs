//! How much memory filters of tables have, and how much room there is for more.
//!
//! Nearly all of it is that of their arena, with the holes between them as far as their pages
//! cannot be given back to the system. A bound is on what they have, not on what they use of it.

use sievedb_filter::ArenaStats;

use crate::{
    memory::MemoryUse,
    table::{room::in_memory, store::TableStore},
};

/// At most this part of a bound is left to holes when filters are planned. What does not fit then
/// waits.
const WASTE_PART: u64 = 16;

/// What a filter has outside of the arena is at most this part of it: a ribbon of one column has a
/// 64th in thresholds...
const BESIDE_PART: u64 = 32;
/// ...and so many bytes: its layers and groups.
const BESIDE_BYTES: u64 = 1 << 10;

/// What filters have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterMemory {
    arena: ArenaStats,
    /// What lies outside of the arena.
    beside_bytes: u64,
}

impl FilterMemory {
    /// With the holes between them, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.arena.bytes as u64 + self.beside_bytes
    }

    /// What holes hold and cannot give back, in bytes.
    pub(crate) fn unreclaimable_bytes(&self) -> u64 {
        self.arena.unreclaimable_bytes as u64
    }

    /// With what holes cannot give back.
    fn bytes_min(&self) -> u64 {
        (self.arena.used_bytes + self.arena.unreclaimable_bytes) as u64 + self.beside_bytes
    }

    /// The bytes of a filter that can be added within a bound.
    pub(crate) fn room(&self, bytes_max: u64) -> u64 {
        let (used, edges) = (self.bytes_min(), self.arena.rounding_bytes_max as u64);
        let in_hole = if used <= bytes_max { self.arena.free_range_bytes_max as u64 } else { 0 };
        bytes_max.saturating_sub(used).saturating_sub(edges).max(in_hole)
    }

    /// What a plan may give to filters within a bound, so that all of them can be loaded.
    pub(crate) fn planned(&self, bytes_max: u64) -> u64 {
        if bytes_max == u64::MAX {
            return bytes_max;
        }
        let waste = (self.arena.unreclaimable_bytes + self.arena.rounding_bytes_max) as u64;
        bytes_max - waste.min(bytes_max / WASTE_PART)
    }

    /// What certainly becomes free when a filter of so many bytes goes: others may share its pages.
    pub(crate) fn freed_by(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(2 * self.arena.rounding_bytes_max as u64)
    }
}

impl TableStore {
    /// What the filters of all tables have.
    pub(crate) fn filter_memory(&self) -> FilterMemory {
        let arena = self.filter_arena.stats();
        FilterMemory { arena, beside_bytes: self.memory.bytes(MemoryUse::Filters) }
    }

    /// What they have, and the bound of that moment.
    pub(crate) fn filter_bytes_and_max(&self) -> (u64, u64) {
        let bytes_max = || self.memory.filter_bytes_max();
        let mut before = bytes_max();
        loop {
            let bytes = self.filter_memory().bytes();
            let after = bytes_max();
            if before == after {
                return (bytes, after);
            }
            before = after;
        }
    }

    /// Has the arena keep filters within a bound, as far as holes make room for that. What is
    /// loaded must [have room](Self::has_filter_room).
    pub(crate) fn bound_filters(&self, bytes_max: u64) {
        self.filter_arena.announce(0, in_memory(self.memory.bytes(MemoryUse::Filters)));
        self.filter_arena.set_bytes_max(in_memory(bytes_max));
    }

    /// Whether there is room within a bound for a filter of so many bytes, which is loaded then.
    pub(crate) fn has_filter_room(&self, bytes: u64, bytes_max: u64) -> bool {
        let has_room = self.filter_memory().room(bytes_max) >= bytes;
        if has_room {
            self.expect_filter(bytes);
        }
        has_room
    }

    /// A filter of so many bytes is about to be loaded: what it has outside of the arena is no more
    /// for the arena.
    pub(crate) fn expect_filter(&self, bytes: u64) {
        let beside = bytes / BESIDE_PART + BESIDE_BYTES + self.memory.bytes(MemoryUse::Filters);
        self.filter_arena.announce(in_memory(bytes), in_memory(beside));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn memory(change: impl FnOnce(&mut ArenaStats)) -> FilterMemory {
        let mut arena = ArenaStats::default();
        (arena.bytes, arena.used_bytes) = (4 * MIB, 3 * MIB);
        change(&mut arena);
        FilterMemory { arena, beside_bytes: 1_000 }
    }

    #[test]
    fn holes_leave_room_but_for_their_edges() {
        let bytes_max = 5 * MIB as u64;
        let all_goes = memory(|_| ());
        assert_eq!(all_goes.bytes(), 4 * MIB as u64 + 1_000);
        assert_eq!(all_goes.room(bytes_max), 2 * MIB as u64 - 1_000);
        let edges_stay = memory(|arena| {
            (arena.unreclaimable_bytes, arena.rounding_bytes_max) = (30_000, 16_000);
        });
        assert_eq!(edges_stay.bytes(), all_goes.bytes());
        assert_eq!(edges_stay.room(bytes_max), 2 * MIB as u64 - 47_000);
        assert_eq!(edges_stay.room(3 * MIB as u64 + 40_000), 0);
        assert_eq!(edges_stay.room(1), 0);
        assert_eq!(edges_stay.freed_by(100_000), 68_000);
        assert_eq!(edges_stay.freed_by(10_000), 0);
    }

    #[test]
    fn a_hole_that_stays_has_room_within_the_bound() {
        let stays = memory(|arena| {
            (arena.unreclaimable_bytes, arena.free_range_bytes_max) = (MIB, MIB / 2);
        });
        let least = 4 * MIB as u64 + 1_000;
        assert_eq!(stays.room(least), MIB as u64 / 2);
        assert_eq!(stays.room(least - 1), 0);
        assert_eq!(stays.room(least + MIB as u64), MIB as u64);
    }

    /// A plan leaves out what holes keep, within reason, and nothing where there is no bound.
    #[test]
    fn plans_leave_the_edges_of_holes() {
        let small = memory(|arena| {
            (arena.unreclaimable_bytes, arena.rounding_bytes_max) = (30_000, 16_000);
        });
        assert_eq!(small.planned(16 << 20), (16 << 20) - 46_000);
        assert_eq!(small.planned(160_000), 150_000);
        assert_eq!(small.planned(u64::MAX), u64::MAX);
        assert_eq!(memory(|_| ()).planned(160_000), 160_000);
    }
}
