//! Memory of filters. Nearly all is in their arena, including holes whose pages cannot be freed.
//! Bounds apply to allocated memory, not to the used part.

use sievedb_filter::ArenaStats;

use crate::{
    memory::MemoryUse,
    table::{room::in_memory, store::TableStore},
};

/// Divisor of a bound: plans reserve at most this part for holes. Filters that do not fit then
/// wait.
const WASTE_PART: u64 = 16;

/// Divisor of a filter: at most this part is outside of the arena, as a ribbon of one column has a
/// 64th in thresholds.
const BESIDE_PART: u64 = 32;
/// Additional bytes of a filter outside of the arena: its layers and groups.
const BESIDE_BYTES: u64 = 1 << 10;

/// Memory of the filters of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilterMemory {
    arena: ArenaStats,
    /// Bytes outside of the arena.
    beside_bytes: u64,
}

impl FilterMemory {
    pub(super) fn of(store: &TableStore) -> Self {
        let arena = store.filter_arena.stats();
        Self { arena, beside_bytes: store.memory.bytes(MemoryUse::Filters) }
    }

    /// Returns all bytes, including holes.
    pub(super) fn bytes(&self) -> u64 {
        self.arena.bytes as u64 + self.beside_bytes
    }

    /// Returns the bytes of holes that cannot be freed.
    pub(super) fn unreclaimable_bytes(&self) -> u64 {
        self.arena.unreclaimable_bytes as u64
    }

    /// Returns the used bytes, and those of holes that cannot be freed.
    fn bytes_min(&self) -> u64 {
        (self.arena.used_bytes + self.arena.unreclaimable_bytes) as u64 + self.beside_bytes
    }

    /// Returns the bytes that can be added within a bound.
    pub(super) fn room(&self, bytes_max: u64) -> u64 {
        let (used, edges) = (self.bytes_min(), self.arena.rounding_bytes_max as u64);
        let in_hole = if used <= bytes_max { self.arena.free_range_bytes_max as u64 } else { 0 };
        bytes_max.saturating_sub(used).saturating_sub(edges).max(in_hole)
    }

    /// Returns the part of a bound that a plan may spend, so that all of it can be loaded.
    pub(super) fn planned(&self, bytes_max: u64) -> u64 {
        if bytes_max == u64::MAX {
            return bytes_max;
        }
        let waste = (self.arena.unreclaimable_bytes + self.arena.rounding_bytes_max) as u64;
        bytes_max - waste.min(bytes_max / WASTE_PART)
    }

    /// Returns the bytes that a filter certainly frees: others may share its pages.
    pub(super) fn freed_by(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(2 * self.arena.rounding_bytes_max as u64)
    }
}

/// Makes the arena keep filters within `bytes_max` bytes, as far as its holes allow. Loads must
/// [have room](has_room).
pub(super) fn bound(store: &TableStore, bytes_max: u64) {
    store.filter_arena.announce(0, in_memory(store.memory.bytes(MemoryUse::Filters)));
    store.filter_arena.set_bytes_max(in_memory(bytes_max));
}

/// Returns `true` if `bytes_max` has room for a filter of `bytes` bytes, which must be loaded next.
pub(super) fn has_room(store: &TableStore, bytes: u64, bytes_max: u64) -> bool {
    let has_room = FilterMemory::of(store).room(bytes_max) >= bytes;
    if has_room {
        expect(store, bytes);
    }
    has_room
}

/// Prepares the arena for a filter of `bytes` bytes, without its part outside of the arena.
pub(super) fn expect(store: &TableStore, bytes: u64) {
    let beside = bytes / BESIDE_PART + BESIDE_BYTES + store.memory.bytes(MemoryUse::Filters);
    store.filter_arena.announce(in_memory(bytes), in_memory(beside));
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

    /// A plan excludes the bytes of holes, within limits, and nothing if there is no bound.
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
