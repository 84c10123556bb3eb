//! Back-pressure: delays of writes, in proportion to the debt of flushes and compactions. Pure.

use std::time::Duration;

use crate::{StallReason, read::tree::Tree, store::Store, sync::atomic::Ordering::Relaxed};

/// Runs of level 0 from which on writes are delayed.
const LEVEL0_RUNS_SLOW: usize = 12;
/// Runs of level 0 at which writes wait for a compaction.
const LEVEL0_RUNS_MAX: usize = 32;
/// Runs of level 0 that running compactions hold, and that delay no write, at most. With these, a
/// keyspace has at most 44 runs of level 0 when writes stop. Runs that another style or a pause
/// left do not count: see [`runs_without_delay`].
const LEVEL0_RUNS_BUSY_MAX: usize = LEVEL0_RUNS_SLOW;
/// Frozen memtables of a keyspace from which on writes are delayed.
const FROZEN_SLOW: usize = 2;
/// Frozen memtables of a keyspace at which writes wait for a flush. With the active one, a keyspace
/// has at most four memtables.
const FROZEN_MAX: usize = 3;
/// Runs of level 0 when writes stop, plus the runs of the memtables flushed afterwards.
const ORDINARY_RUNS_MAX: usize = LEVEL0_RUNS_MAX + LEVEL0_RUNS_BUSY_MAX + FROZEN_MAX + 1;
/// Debt of compactions from which on writes are delayed, over the least size of the base level.
const COMPACTION_BASES_SLOW: f64 = 16.0;
/// Compaction debt with the longest delay. This debt never stops writes: it costs space and reads,
/// not memory.
const COMPACTION_BASES_MAX: f64 = 64.0;
/// The delay of a write right before writes have to wait.
const DELAY_MAX: Duration = Duration::from_millis(2);

/// Background work due in a keyspace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::store) struct Debt {
    /// Runs of level 0. Excludes runs that no compaction reduces, and [some](runs_without_delay)
    /// held by running compactions.
    pub(in crate::store) level0_runs: usize,
    pub(in crate::store) frozen_memtables: usize,
    /// Bytes that compactions must write, over the least size of the base level.
    pub(in crate::store) compaction_bases: f64,
}

/// Required behavior of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Pressure {
    /// Continue after a delay, which may be zero.
    Delay(Duration),
    /// Wait until the debt is smaller.
    Stop,
}

/// Returns the behavior that `debt` requires.
///
/// The delay grows with the debt between the two thresholds, so that writers settle at the speed of
/// the background work.
pub(in crate::store) fn pressure(debt: Debt) -> Pressure {
    if debt.level0_runs >= LEVEL0_RUNS_MAX || debt.frozen_memtables >= FROZEN_MAX {
        return Pressure::Stop;
    }
    let is_small = debt.level0_runs < LEVEL0_RUNS_SLOW
        && debt.frozen_memtables < FROZEN_SLOW
        && debt.compaction_bases <= COMPACTION_BASES_SLOW;
    if is_small {
        // The usual case of every write.
        return Pressure::Delay(Duration::ZERO);
    }
    Pressure::Delay(DELAY_MAX.mul_f64(largest_share(debt).1))
}

/// Returns how many runs of level 0 delay no write, while compactions hold `busy` of them. Another
/// style or a pause left `left` runs: a delay until their end would last as long as a merge of the
/// whole keyspace.
pub(in crate::store) fn runs_without_delay(busy: usize, left: usize) -> usize {
    if busy == 0 { 0 } else { left.max(busy.min(LEVEL0_RUNS_BUSY_MAX)) }
}

/// Returns the number of the newest run of level 0 that another style or a pause left; `None` if
/// none did. `runs` has the numbers of all runs, newest first, and `before` is the last result. The
/// style allows `allowed` runs.
///
/// A keyspace has more than [`ORDINARY_RUNS_MAX`] others only after another style or a pause. Newer
/// runs do not count, so flushes add no more than merges remove.
pub(in crate::store) fn newest_left(
    runs: &[u64],
    allowed: usize,
    before: Option<u64>,
) -> Option<u64> {
    let are_left = |count: usize| count > allowed.saturating_add(ORDINARY_RUNS_MAX);
    before.or_else(|| runs.first().copied()).filter(|_| are_left(runs.len()))
}

/// Returns why `debt` delays or stops writes.
pub(in crate::store) fn stall_reason(debt: Debt) -> StallReason {
    if debt.frozen_memtables >= FROZEN_MAX {
        return StallReason::Flushes;
    }
    largest_share(debt).0
}

/// Returns the work of which most of its range of delays is due, with that share.
#[inline]
fn largest_share(debt: Debt) -> (StallReason, f64) {
    let share = |value: f64, slow: f64, max: f64| ((value - slow) / (max - slow)).clamp(0.0, 1.0);
    let count =
        |value: usize, slow: usize, max: usize| share(value as f64 + 1.0, slow as f64, max as f64);
    let level0 = count(debt.level0_runs, LEVEL0_RUNS_SLOW, LEVEL0_RUNS_MAX);
    // A flush takes far less time than the compaction of level 0 into a large base level.
    let frozen = count(debt.frozen_memtables, FROZEN_SLOW, FROZEN_MAX) / 20.0;
    let deeper = share(debt.compaction_bases, COMPACTION_BASES_SLOW, COMPACTION_BASES_MAX);
    let mut largest = (StallReason::Level0, level0);
    for other in [(StallReason::Flushes, frozen), (StallReason::Compactions, deeper)] {
        if other.1 > largest.1 {
            largest = other;
        }
    }
    largest
}

impl Store {
    /// Returns the background work that `tree` is due and that can be done: no compaction during a
    /// pause.
    pub(in crate::store) fn debt(&self, tree: &Tree) -> Debt {
        let view = tree.view();
        let frozen_memtables = view.frozen.len();
        if self.scheduler.is_paused() {
            return Debt { level0_runs: 0, frozen_memtables, compaction_bases: 0.0 };
        }
        let options = tree.options();
        let allowed = options.compaction_style.level0_runs_allowed();
        let kept = tree.level0_runs_kept().max(allowed);
        let busy = tree.level0_runs_busy.load(Relaxed);
        let level0_runs = view.version.level0_runs().saturating_sub(kept.saturating_add(busy));
        let base_bytes = options.base_level_bytes as f64;
        let compaction_bases = tree.compaction_debt_bytes() as f64 / base_bytes;
        Debt { level0_runs, frozen_memtables, compaction_bases }
    }

    /// Returns the delay of a write to `tree` in microseconds; the longest if writes wait.
    pub(in crate::store) fn write_delay_us(&self, tree: &Tree) -> u64 {
        let delay = match pressure(self.debt(tree)) {
            Pressure::Delay(delay) => delay,
            Pressure::Stop => DELAY_MAX,
        };
        delay.as_micros() as u64
    }
}

/// The delay of a write right before it has to wait for memory. A flush takes less time than the
/// compactions that other delays wait for.
const ROOM_DELAY_MAX: Duration = Duration::from_micros(100);

/// Required behavior of a write of `bytes` while memtables take `used` of `limit` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Room {
    /// Continue after a delay, which may be zero.
    Delay(Duration),
    /// Wait for a flush.
    Wait,
    /// Never fits: at most this many bytes do.
    Never(u64),
}

/// Returns whether there is room for a write.
///
/// From 3/4 of the limit on writers are slowed in proportion, so that they settle at the speed of
/// the flushes. A quarter of the rest must stay free: new memtables need filters. For a batch of
/// any number of keyspaces, these take at most a fifth of the rest.
pub(in crate::store) fn room(bytes: u64, used: u64, limit: u64) -> Room {
    if bytes > writable_share(limit) {
        return Room::Never(writable_share(limit));
    }
    let left = limit.saturating_sub(used);
    if bytes > writable_share(left) {
        return Room::Wait;
    }
    let over = used.saturating_sub(writable_share(limit));
    if over == 0 {
        return Room::Delay(Duration::ZERO);
    }
    let slowed = over as f64 / (limit - writable_share(limit)).max(1) as f64;
    Room::Delay(ROOM_DELAY_MAX.mul_f64(slowed.min(1.0)))
}

/// Returns the part of `left` bytes that a write may take.
const fn writable_share(left: u64) -> u64 {
    left - left / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_grows_with_debt() {
        let of = |level0_runs, frozen_memtables| {
            pressure(Debt { level0_runs, frozen_memtables, compaction_bases: 0.0 })
        };
        assert_eq!(of(0, 0), Pressure::Delay(Duration::ZERO));
        assert_eq!(of(LEVEL0_RUNS_SLOW - 1, 1), Pressure::Delay(Duration::ZERO));
        let mut last = Duration::ZERO;
        for runs in LEVEL0_RUNS_SLOW..LEVEL0_RUNS_MAX {
            let Pressure::Delay(delay) = of(runs, 0) else { panic!("{runs} runs stop writes") };
            assert!(delay > last && delay <= DELAY_MAX, "{runs} runs: {delay:?}");
            last = delay;
        }
        assert_eq!(of(LEVEL0_RUNS_MAX, 0), Pressure::Stop);
        assert_ne!(of(0, FROZEN_SLOW), Pressure::Delay(Duration::ZERO));
        assert_eq!(of(0, FROZEN_MAX), Pressure::Stop);
        let debt = |compaction_bases| {
            pressure(Debt { level0_runs: 0, frozen_memtables: 0, compaction_bases })
        };
        assert_eq!(debt(COMPACTION_BASES_SLOW), Pressure::Delay(Duration::ZERO));
        assert_eq!(debt(40.0), Pressure::Delay(DELAY_MAX / 2));
        let cases = [
            (LEVEL0_RUNS_MAX, 0, 0.0, StallReason::Level0),
            (LEVEL0_RUNS_SLOW, FROZEN_MAX, 0.0, StallReason::Flushes),
            (0, FROZEN_SLOW, 0.0, StallReason::Flushes),
            (LEVEL0_RUNS_SLOW, 0, 60.0, StallReason::Compactions),
        ];
        for (level0_runs, frozen_memtables, compaction_bases, reason) in cases {
            let debt = Debt { level0_runs, frozen_memtables, compaction_bases };
            assert_eq!(stall_reason(debt), reason, "{debt:?}");
        }
        assert_eq!(debt(1e9), Pressure::Delay(DELAY_MAX));
    }

    #[test]
    fn up_to_twelve_busy_runs_delay_no_write_except_those_of_another_style() {
        let cases = [
            (0, 0, 0, 0),
            (7, 7, 0, 7),
            (32, 32, 0, 12),
            (44, 44, 0, 12),
            (48, 48, 0, 12),
            (49, 49, 0, 49),
            (64, 64, 16, 12),
            (520, 520, 16, 520),
            // A merge of a part of them.
            (520, 16, 0, 520),
            // A pause between two merges.
            (520, 0, 0, 0),
        ];
        for (runs, busy, allowed, want) in cases {
            let numbers: Vec<u64> = (0..runs).rev().collect();
            let newest = newest_left(&numbers, allowed, None);
            let left = numbers.iter().filter(|&&run| Some(run) <= newest && newest.is_some());
            let found = runs_without_delay(busy, left.count());
            assert_eq!(found, want, "{busy} of {runs}, {allowed} allowed");
        }
    }

    /// Otherwise their number could grow while the old ones are merged.
    #[test]
    fn runs_that_are_flushed_beside_those_of_another_style_count() {
        let runs = |newest: u64| (0..newest).rev().collect::<Vec<_>>();
        let left = newest_left(&runs(60), 0, None);
        assert_eq!(left, Some(59));
        assert_eq!(newest_left(&runs(80), 0, left), left);
        // The first half became one run.
        let rest = &runs(90)[..60];
        assert_eq!(newest_left(rest, 0, left), left, "30 are left of the old ones");
        assert_eq!(newest_left(&runs(48), 0, left), None);
    }

    #[test]
    fn writes_are_slowed_and_then_wait() {
        let limit = 1_000;
        let mut last = Duration::ZERO;
        for used in (0..=760).step_by(10) {
            assert_eq!(room(1, used.min(750), limit), Room::Delay(Duration::ZERO), "{used}");
        }
        for used in (760..=990).step_by(10) {
            let Room::Delay(delay) = room(1, used, limit) else { panic!("{used} waits") };
            assert!(delay > last && delay <= ROOM_DELAY_MAX, "{used}: {delay:?}");
            last = delay;
        }
        let cases = [
            ("all is taken", 1, 1_000, Room::Wait),
            ("more than all", 1, 5_000, Room::Wait),
            ("a large one that fits", 750, 0, Room::Delay(Duration::ZERO)),
            ("a large one that fits later", 750, 10, Room::Wait),
            ("one that never fits", 751, 0, Room::Never(750)),
            ("a quarter of what is left stays", 60, 930, Room::Wait),
        ];
        for (name, bytes, used, want) in cases {
            assert_eq!(room(bytes, used, limit), want, "{name}");
        }
    }
}
