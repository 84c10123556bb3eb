//! Back-pressure: writers are slowed down by as much as flushes and compactions lag behind.

use std::{sync::Arc, time::Duration};

use super::memory::Room;
use crate::{Result, commit::Write, read::tree::Tree, store::Store};

/// Runs of level 0 from which on writes are delayed.
const LEVEL0_RUNS_SLOW: usize = 12;
/// Runs of level 0 at which writes wait for a compaction.
const LEVEL0_RUNS_MAX: usize = 32;
/// Frozen memtables of a keyspace from which on writes are delayed.
const FROZEN_SLOW: usize = 2;
/// Frozen memtables of a keyspace at which writes wait for a flush: with the active one, a
/// keyspace has four memtables at the most.
const FROZEN_MAX: usize = 3;
/// What compactions have to write from which on writes are delayed, over the least size of the base
/// level.
const COMPACTION_BASES_SLOW: f64 = 16.0;
/// The same where the delay is longest. Debt of this kind never stops writes: it costs space and
/// reads on level 1 and deeper, not memory.
const COMPACTION_BASES_MAX: f64 = 64.0;
/// The delay of a write right before writes have to wait.
const DELAY_MAX: Duration = Duration::from_millis(2);

/// How far background work lags behind in one keyspace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Debt {
    /// Without those that no compaction reduces: waiting would not help.
    pub(crate) level0_runs: usize,
    pub(crate) frozen_memtables: usize,
    /// What compactions have to write, over the least size of the base level.
    pub(crate) compaction_bases: f64,
}

/// What a write has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Go on after a delay, which may be zero.
    Delay(Duration),
    /// Wait until background work has caught up.
    Stop,
}

/// What a write has to do in the face of `debt`. Pure.
///
/// The delay grows in proportion to the debt between the two thresholds, so that writers settle at
/// the speed of the background work instead of running into a wall.
pub(crate) fn pressure(debt: Debt) -> Pressure {
    if debt.level0_runs >= LEVEL0_RUNS_MAX || debt.frozen_memtables >= FROZEN_MAX {
        return Pressure::Stop;
    }
    let share = |value: f64, slow: f64, max: f64| ((value - slow) / (max - slow)).clamp(0.0, 1.0);
    let count =
        |value: usize, slow: usize, max: usize| share(value as f64 + 1.0, slow as f64, max as f64);
    let level0 = count(debt.level0_runs, LEVEL0_RUNS_SLOW, LEVEL0_RUNS_MAX);
    // A flush takes far less time than the compaction of level 0 into a large base level.
    let frozen = count(debt.frozen_memtables, FROZEN_SLOW, FROZEN_MAX) / 20.0;
    let deeper = share(debt.compaction_bases, COMPACTION_BASES_SLOW, COMPACTION_BASES_MAX);
    let most = level0.max(frozen).max(deeper);
    if most == 0.0 {
        // The usual case: every write asks.
        return Pressure::Delay(Duration::ZERO);
    }
    Pressure::Delay(DELAY_MAX.mul_f64(most))
}

impl Tree {
    /// How far background work lags behind here.
    pub(crate) fn debt(&self) -> Debt {
        let view = self.view();
        let level0_runs = view.version.level0_runs().saturating_sub(self.level0_runs_kept());
        let frozen_memtables = view.frozen.len();
        let base_bytes = self.options().base_level_bytes as f64;
        let compaction_bases = self.compaction_debt_bytes() as f64 / base_bytes;
        Debt { level0_runs, frozen_memtables, compaction_bases }
    }

    /// Present delay of a write, in microseconds; the longest if writes have to wait.
    pub(crate) fn write_delay_us(self: &Arc<Self>) -> u64 {
        let delay = match pressure(self.debt()) {
            Pressure::Delay(delay) => delay,
            Pressure::Stop => DELAY_MAX,
        };
        delay.as_micros() as u64
    }
}

impl Store {
    /// Counts the time for which `wait` keeps a writer.
    pub(super) fn stall<T>(&self, wait: impl FnOnce() -> T) -> T {
        let clock = &self.options.clock;
        let start = clock.now();
        let waited = wait();
        let counters = &self.tables.counters.local().writes;
        counters.stalls.add(1);
        counters.stalled_us.add(clock.now().saturating_sub(start).as_micros() as u64);
        waited
    }

    /// Delays a write, or lets it wait, as the debt of its keyspaces demands.
    ///
    /// # Errors
    ///
    /// Why background work cannot catch up; [`WriteTooLarge`](crate::Error::WriteTooLarge).
    pub(crate) fn throttle(&self, write: &Write) -> Result<()> {
        match self.room(write)? {
            Room::Delay(Duration::ZERO) => {}
            Room::Delay(delay) => self.stall(|| self.options.clock.sleep(delay)),
            // Placing waits, where nobody can take the room away again.
            Room::Wait | Room::Never(_) => {}
        }
        match self.tables_delay() {
            Duration::ZERO => {}
            delay => self.stall(|| self.options.clock.sleep(delay)),
        }
        for target in &write.targets {
            match pressure(target.tree.debt()) {
                Pressure::Delay(Duration::ZERO) => {}
                Pressure::Delay(delay) => self.stall(|| self.options.clock.sleep(delay)),
                Pressure::Stop => {
                    if self.options.worker_threads == 0 {
                        // Nobody tries again by himself after a full disk.
                        self.background.retry();
                    }
                    let tree = &target.tree;
                    let is_over = || tree.is_dropped() || pressure(tree.debt()) != Pressure::Stop;
                    self.stall(|| self.wait_for_work(|_| is_over()))?;
                }
            }
        }
        Ok(())
    }
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
        assert_eq!(debt(1e9), Pressure::Delay(DELAY_MAX));
    }
}
