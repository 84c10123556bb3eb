//! Totals and differences of statistics.

use super::{LevelStats, Stats};

impl Stats {
    /// Returns the sum of all levels.
    #[must_use]
    pub fn total(&self) -> LevelStats {
        self.levels.iter().copied().fold(LevelStats::default(), LevelStats::plus)
    }

    /// Returns the counters since `earlier`, taken from the same open store. Counters are
    /// differences, [`open_for`](Self::open_for) is the time between, and all other figures are
    /// those of `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (mut now, mut earlier) = (self.clone(), earlier.clone());
        now.open_for = now.open_for.saturating_sub(earlier.open_for);
        for ((_, now), (_, earlier)) in now.counted_mut().into_iter().zip(earlier.counted_mut()) {
            *now = now.saturating_sub(*earlier);
        }
        for (now, earlier) in now.levels.iter_mut().zip(&mut earlier.levels) {
            for ((_, now), (_, earlier)) in now.counted_mut().into_iter().zip(earlier.counted_mut())
            {
                *now = now.saturating_sub(*earlier);
            }
            let expected = now.false_positives_expected - earlier.false_positives_expected;
            now.false_positives_expected = expected.max(0.0);
        }
        now
    }

    /// Returns the counters outside of levels, by name.
    pub(super) fn counted_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        let Self { lookups, writes, table_reads, background, moves, .. } = self;
        let mut counted = named! {
            "" lookups => lookups found_in_memtables memtable_probes memtable_negatives;
            "writes." writes => batches entries bytes log_syncs stalls stalled_us;
            "table_read_" table_reads => calls bytes;
            "" background => flushes compactions trivial_moves tables_unlinked_unread filters_rebuilt
                compactions_without_space flush_bytes_written compaction_bytes_read compaction_bytes_written;
        };
        counted.extend(moves.counted_mut());
        counted
    }

    /// Returns the other figures outside of levels, by name.
    pub(super) fn held_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        named! {
            "" self => opened_ms last_sequence log_segments log_bytes retained_log_bytes
                write_delay_us snapshots oldest_snapshot_us tables_quarantined tables_with_unusable_filters
                filters_not_whole compaction_bytes_refused;
            "memory." self.memory => budget_bytes memtable_bytes memtable_bytes_max filter_bytes
                filter_bytes_max index_bytes bookkeeping_bytes writing_bytes writing_bytes_max
                block_cache_bytes block_cache_bytes_max block_page_bytes pinned_bytes
                mapped_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_difference_is_of_what_is_counted() {
        let look = |seconds, lookups, held, negatives, expected| {
            let mut stats = Stats { open_for: Duration::from_secs(seconds), ..Stats::default() };
            stats.lookups.lookups = lookups;
            stats.memory.filter_bytes = held;
            stats.moves.filters.takes = lookups;
            stats.levels = vec![LevelStats {
                tables: held,
                filter_negatives: negatives,
                false_positives_expected: expected,
                ..LevelStats::default()
            }];
            stats
        };
        let difference = look(12, 150, 7, 90, 2.5).since(&look(10, 100, 5, 60, 2.0));
        let want = look(2, 50, 7, 30, 0.5);
        assert_eq!(difference.open_for, want.open_for);
        assert_eq!(difference.lookups, want.lookups);
        assert_eq!(difference.memory, want.memory);
        assert_eq!(difference.moves, want.moves);
        assert_eq!(difference.levels, want.levels);
        assert_eq!(difference.total(), want.levels[0]);
    }
}
