//! Moves of memory between the block cache and the other parts of a budget.

/// Moves of memory between the block cache and the other parts of the budget, and counters of
/// memtables at their limit. Counted since the store was opened.
///
/// The limit of the block cache is what the other parts leave, in steps of 1/64 of the budget and
/// at most 1 MiB. Each change is counted for the part that grew, or shrank, the most since the
/// previous change. In a [`MemoryPool`](crate::MemoryPool), each [`CacheMoves`] is that of all
/// stores since the pool was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryMoves {
    /// For memtables: active, frozen, and pinned by readers.
    pub memtables: CacheMoves,
    /// For filters of tables.
    pub filters: CacheMoves,
    /// For top indexes of tables.
    pub indexes: CacheMoves,
    /// For bookkeeping of keyspaces and tables.
    pub bookkeeping: CacheMoves,
    /// For flushes, compactions and builds of filters.
    pub writing: CacheMoves,
    /// For decreases and increases of the budget.
    pub budget: CacheMoves,
    /// Idle memtables that were frozen and flushed to give their memory to the block cache.
    pub idle_memtables_flushed: u64,
    /// Memory of these memtables, in bytes.
    pub idle_memtable_bytes_flushed: u64,
    /// Memtables that were frozen before they were full. Active memtables had reached 1/2 of the
    /// limit of memtables (11/16 if all were small), or a write needed the room. The write may be
    /// of another store of the [pool](crate::MemoryPool).
    pub memtables_frozen_at_limit: u64,
    /// Waits of writes for room in the memtables. [`WriteStats::stalls`](super::WriteStats::stalls)
    /// counts them, too.
    pub memtable_room_waits: u64,
    /// Times that the limit of memtables was lowered by 1/8 of its maximum, because the block cache
    /// would save more I/O than the memtables. In a [`MemoryPool`](crate::MemoryPool), this and the
    /// next two are for all stores.
    pub memtable_limit_lowered: u64,
    /// Times that the limit of memtables was raised by 1/8 of its maximum.
    pub memtable_limit_raised: u64,
    /// Times that writes restored the maximum of the limit of memtables.
    pub memtable_limit_restored: u64,
}

/// Changes of the limit of the block cache that one part caused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CacheMoves {
    /// Times that the limit of the block cache was lowered.
    pub takes: u64,
    /// Bytes by which it was lowered.
    pub bytes_taken: u64,
    /// Times that it was raised.
    pub returns: u64,
    /// Bytes by which it was raised.
    pub bytes_returned: u64,
}

impl CacheMoves {
    fn note(&mut self, from: u64, to: u64) {
        let (count, bytes) = if to < from {
            (&mut self.takes, &mut self.bytes_taken)
        } else {
            (&mut self.returns, &mut self.bytes_returned)
        };
        *count = count.saturating_add(1);
        *bytes = bytes.saturating_add(to.abs_diff(from));
    }
}

/// Bytes that determine the limit of the block cache.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheRivals {
    pub(crate) memtables: u64,
    pub(crate) filters: u64,
    pub(crate) indexes: u64,
    pub(crate) bookkeeping: u64,
    pub(crate) writing: u64,
    /// Limit of all of them and the block cache.
    pub(crate) pool: u64,
    /// Limit of the block cache with the indexes.
    pub(crate) ceiling: u64,
}

impl CacheRivals {
    /// Returns the bytes by which each part leaves less to the cache than in `before`, in the order
    /// of [`MemoryMoves::of_rivals`].
    fn growth_since(&self, before: &Self) -> [i128; 6] {
        let grown = |now: u64, before: u64| i128::from(now) - i128::from(before);
        let indexes = grown(self.indexes, before.indexes);
        let budget = grown(before.pool.min(before.ceiling), self.pool.min(self.ceiling));
        if self.is_at_ceiling() && before.is_at_ceiling() {
            // The other parts leave more than the cache may take.
            return [0, 0, indexes, 0, 0, budget];
        }
        [
            grown(self.memtables, before.memtables),
            grown(self.filters, before.filters),
            indexes,
            grown(self.bookkeeping, before.bookkeeping),
            grown(self.writing, before.writing),
            budget,
        ]
    }

    /// Returns `true` if its own ceiling bounds the block cache.
    fn is_at_ceiling(&self) -> bool {
        let Self { memtables, filters, bookkeeping, writing, pool, ceiling, .. } = self;
        *ceiling < pool.saturating_sub(memtables + filters + bookkeeping + writing)
    }
}

impl MemoryMoves {
    fn of_rivals(&mut self) -> [&mut CacheMoves; 6] {
        let Self { memtables, filters, indexes, bookkeeping, writing, budget, .. } = self;
        [memtables, filters, indexes, bookkeeping, writing, budget]
    }

    /// Returns the sum of all moves.
    #[must_use]
    pub fn of_cache(&self) -> CacheMoves {
        let mut moves = *self;
        let mut sum = CacheMoves::default();
        for part in moves.of_rivals() {
            sum.takes = sum.takes.saturating_add(part.takes);
            sum.bytes_taken = sum.bytes_taken.saturating_add(part.bytes_taken);
            sum.returns = sum.returns.saturating_add(part.returns);
            sum.bytes_returned = sum.bytes_returned.saturating_add(part.bytes_returned);
        }
        sum
    }

    pub(super) fn counted_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        named! {
            "moves.memtables." self.memtables => takes bytes_taken returns bytes_returned;
            "moves.filters." self.filters => takes bytes_taken returns bytes_returned;
            "moves.indexes." self.indexes => takes bytes_taken returns bytes_returned;
            "moves.bookkeeping." self.bookkeeping => takes bytes_taken returns bytes_returned;
            "moves.writing." self.writing => takes bytes_taken returns bytes_returned;
            "moves.budget." self.budget => takes bytes_taken returns bytes_returned;
            "moves." self => idle_memtables_flushed idle_memtable_bytes_flushed
                memtables_frozen_at_limit memtable_room_waits memtable_limit_lowered
                memtable_limit_raised memtable_limit_restored;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct MoveCounter {
    moves: MemoryMoves,
    /// State at the last change.
    before: Option<CacheRivals>,
}

impl MoveCounter {
    /// Counts a change of the limit of the cache for the part with the largest change in that
    /// direction. The first call only sets the state.
    pub(crate) fn note(&mut self, from: u64, to: u64, now: CacheRivals) {
        let Some(before) = self.before.replace(now) else { return };
        let direction = if to < from { 1 } else { -1 };
        let growth = now.growth_since(&before).map(|growth| direction * growth);
        let of_rivals = self.moves.of_rivals().into_iter().zip(growth);
        if let Some((moves, _)) = of_rivals.max_by_key(|(_, growth)| *growth) {
            moves.note(from, to);
        }
    }

    pub(crate) fn moves(&self) -> MemoryMoves {
        self.moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_counted_for_what_changed_most() {
        let mut counter = MoveCounter::default();
        let unbounded = CacheRivals { ceiling: u64::MAX, ..CacheRivals::default() };
        let start = CacheRivals { filters: 10, writing: 10, pool: 1_000, ..unbounded };
        counter.note(0, 900, start);
        assert_eq!(counter.moves(), MemoryMoves::default(), "the first sets the limit");
        let grown = CacheRivals { memtables: 30, writing: 15, ..start };
        counter.note(900, 850, grown);
        let shrunk = CacheRivals { memtables: 32, writing: 0, ..grown };
        counter.note(850, 870, shrunk);
        counter.note(870, 470, CacheRivals { pool: 600, ..shrunk });
        counter.note(470, 870, shrunk);
        let moves = counter.moves();
        let taken = CacheMoves { takes: 1, bytes_taken: 50, ..CacheMoves::default() };
        assert_eq!(moves.memtables, taken);
        let returned = CacheMoves { returns: 1, bytes_returned: 20, ..CacheMoves::default() };
        assert_eq!(moves.writing, returned);
        let both = CacheMoves { takes: 1, bytes_taken: 400, returns: 1, bytes_returned: 400 };
        assert_eq!(moves.budget, both);
        let all = CacheMoves { takes: 2, bytes_taken: 450, returns: 2, bytes_returned: 420 };
        assert_eq!(moves.of_cache(), all);
    }

    #[test]
    fn only_indexes_move_a_cache_at_its_ceiling() {
        let mut counter = MoveCounter::default();
        let start = CacheRivals { pool: u64::MAX, ceiling: 100, ..CacheRivals::default() };
        counter.note(0, 100, start);
        counter.note(100, 90, CacheRivals { memtables: 500, indexes: 10, ..start });
        let taken = CacheMoves { takes: 1, bytes_taken: 10, ..CacheMoves::default() };
        assert_eq!(counter.moves(), MemoryMoves { indexes: taken, ..MemoryMoves::default() });
    }

    #[test]
    fn counters_end_at_their_maximum() {
        let mut moves = CacheMoves { takes: u64::MAX, ..CacheMoves::default() };
        moves.note(u64::MAX, 0);
        moves.note(5, 0);
        let want = CacheMoves { takes: u64::MAX, bytes_taken: u64::MAX, ..CacheMoves::default() };
        assert_eq!(moves, want);
    }
}
