//! Which compactions precede or wait for others. Pure.

use crate::compaction::choice::{Compaction, Reason};

/// Input of a compaction, in bytes, from which on it takes so long that flushes must not wait for
/// it.
const LONG_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 512 << 20 };

/// Returns whether one of `workers` remains for short compactions beside those that are running and
/// `next`. A long one may always run alone. Flushes require no free worker: see
/// [`urgent`](super::urgent).
pub(super) fn leaves_a_worker<'a>(
    running: impl Iterator<Item = &'a Compaction>,
    next: &Compaction,
    workers: usize,
) -> bool {
    let running = running.filter(|running| is_long(running)).count();
    !is_long(next) || running == 0 || running + 1 < workers
}

/// Returns whether `next` waits for a running compaction because both merge more than two levels.
/// Such merges are long, read most runs at a time, and need space for all of their inputs.
pub(super) fn is_second_of_many_levels<'a>(
    mut running: impl Iterator<Item = &'a Compaction>,
    next: &Compaction,
) -> bool {
    next.has_many_levels() && running.any(Compaction::has_many_levels)
}

/// Returns whether `compaction` makes runs of level 0 fewer, which delay writes, or a caller waits
/// for it.
pub(super) fn is_of_level0(compaction: &Compaction) -> bool {
    reduces_level0(compaction) || compaction.reason == Reason::Range
}

/// Returns whether `compaction` makes runs of level 0 fewer.
pub(super) fn reduces_level0(compaction: &Compaction) -> bool {
    matches!(compaction.reason, Reason::Level0 | Reason::SizeTiered)
}

/// Returns whether `compaction` makes runs of level 0 fewer, and is not long.
pub(super) fn is_short_of_level0(compaction: &Compaction) -> bool {
    reduces_level0(compaction) && !is_long(compaction)
}

/// Returns whether flushes must not wait for this compaction.
fn is_long(compaction: &Compaction) -> bool {
    compaction.writes_tables() && compaction.input_bytes >= LONG_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::choice::LevelInputs;

    #[test]
    fn long_compactions_leave_a_worker() {
        let (long, short) =
            (Compaction::of_bytes(LONG_BYTES), Compaction::of_bytes(LONG_BYTES - 1));
        let moved = Compaction { is_trivial_move: true, ..long.clone() };
        let cases: [(&[&Compaction], &Compaction, usize, bool); 8] = [
            (&[], &long, 1, true),
            (&[], &long, 2, true),
            (&[&short], &long, 2, true),
            (&[&long], &long, 2, false),
            (&[&long], &short, 2, true),
            (&[&long], &moved, 2, true),
            (&[&long], &long, 3, true),
            (&[&long, &long], &long, 3, false),
        ];
        for (number, (running, next, workers, want)) in cases.into_iter().enumerate() {
            let leaves = leaves_a_worker(running.iter().copied(), next, workers);
            assert_eq!(leaves, want, "case {number}");
        }
    }

    #[test]
    fn one_compaction_at_a_time_merges_many_levels() {
        let of_levels = |levels: &[u8]| {
            let inputs = levels.iter().map(|&level| LevelInputs { level, tables: vec![1] });
            Compaction { inputs: inputs.collect(), ..Compaction::of_bytes(1) }
        };
        let (two, many) = (of_levels(&[0, 6]), of_levels(&[0, 5, 6]));
        let unlinked = Compaction { is_unlink: true, ..many.clone() };
        let cases: [(&[&Compaction], &Compaction, bool); 6] = [
            (&[], &many, false),
            (&[&two], &many, false),
            (&[&many], &two, false),
            (&[&two, &many], &many, true),
            (&[&many], &unlinked, false),
            (&[&unlinked], &many, false),
        ];
        for (number, (running, next, want)) in cases.into_iter().enumerate() {
            let waits = is_second_of_many_levels(running.iter().copied(), next);
            assert_eq!(waits, want, "case {number}");
        }
    }
}
