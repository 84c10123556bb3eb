//! Pauses of jobs that found no space.
//!
//! Flushes are retried twice a second.
//!
//! A compaction that finds no space writes until the disk is full. So compactions with as much
//! input are refused until the store has freed that many bytes, or for a pause. The first pause
//! takes [`PAUSE_MIN`]; each further failure doubles it, up to [`PAUSE_MAX`]. Flushes and smaller
//! compactions continue. Compactions that a caller requested are not refused: the caller gets the
//! error.
//!
//! A rebuild of a filter reads a whole table before it finds no space. Its pauses double, too.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    Error,
    compaction::choice::{Compaction, Reason},
};

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause: other processes free space without a notification.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Jobs that found no space. Times are by the clock of the options.
#[derive(Debug, Default)]
pub(super) struct FullDisk {
    /// The last flush failed.
    flushes: Option<Stop>,
    /// The last compaction failed.
    compactions: Option<Stop>,
    failed: Option<Failed>,
    /// The failed rebuilds of filters.
    filters: Option<Pause>,
    /// Keyspaces with a compaction that the last search for work refused.
    refused: BTreeSet<u64>,
    /// Earliest time of a job that the last search for work refused, or that has failed since: no
    /// search may follow before its worker waits.
    retry_at: Option<Duration>,
}

/// A failed flush or compaction, until one succeeds.
#[derive(Debug)]
struct Stop {
    error: Error,
    retry_at: Duration,
}

/// The failed compactions.
#[derive(Debug)]
struct Failed {
    /// Least input of those that failed.
    input_bytes: u64,
    /// Bytes that tables occupied, from an arbitrary start.
    occupied: i64,
    pause: Pause,
}

#[derive(Debug)]
struct Pause {
    error: Error,
    time: Duration,
    retry_at: Duration,
}

impl Pause {
    /// Returns the pause after a failure with `error` at `now`.
    fn after(before: Option<&Self>, error: &Error, now: Duration) -> Self {
        let time = before.map_or(PAUSE_MIN, |before| match before.is_over(now) {
            true => PAUSE_MAX.min(before.time * 2),
            // The job began before the other one failed.
            false => before.time,
        });
        Self { error: error.clone(), time, retry_at: now + time }
    }

    fn is_over(&self, now: Duration) -> bool {
        self.retry_at <= now
    }
}

impl FullDisk {
    /// Notes that a flush, or else a compaction, failed with `error` at `now`. Returns whether it
    /// is the first failure since a success. Without workers, the next call of the store retries.
    pub(super) fn note_stop(
        &mut self,
        is_flush: bool,
        error: &Error,
        now: Duration,
        has_workers: bool,
    ) -> bool {
        let retry_at = if has_workers { now + PAUSE_MIN } else { now };
        let is_first = self.error().is_none();
        let stop = if is_flush { &mut self.flushes } else { &mut self.compactions };
        *stop = Some(Stop { error: error.clone(), retry_at });
        self.look_at(retry_at);
        is_first
    }

    /// Ends the pauses of flushes and compactions: one has succeeded, or none is due.
    pub(super) fn end_stops(&mut self) {
        (self.flushes, self.compactions) = (None, None);
    }

    /// Ends the pause of flushes: one may succeed.
    pub(super) fn end_flush_stop(&mut self) {
        self.flushes = None;
    }

    /// Notes the end of a rebuild of a filter at `now`. Returns whether it is the first failure
    /// since a success.
    pub(super) fn note_rebuild(&mut self, failed: Option<&Error>, now: Duration) -> bool {
        let before = self.filters.take();
        self.filters = failed.map(|error| Pause::after(before.as_ref(), error, now));
        if let Some(pause) = &self.filters {
            self.look_at(pause.retry_at);
        }
        before.is_none() && self.filters.is_some()
    }

    /// Notes that `compaction` failed with `error` at `now`, while tables occupied `occupied`
    /// bytes.
    pub(super) fn note_failure(
        &mut self,
        compaction: &Compaction,
        error: &Error,
        (now, occupied): (Duration, i64),
    ) {
        let before = self.failed.take();
        let pause = Pause::after(before.as_ref().map(|failed| &failed.pause), error, now);
        let unexpired = before.filter(|failed| !failed.pause.is_over(now));
        let input_bytes = unexpired.map_or(u64::MAX, |failed| failed.input_bytes);
        let input_bytes = input_bytes.min(compaction.input_bytes);
        self.look_at(pause.retry_at);
        self.failed = Some(Failed { input_bytes, occupied, pause });
    }

    /// Notes that `compaction` is installed: the disk has room for as much input.
    pub(super) fn note_success(&mut self, compaction: &Compaction) {
        let fits = |failed: &mut Failed| failed.input_bytes <= compaction.input_bytes;
        if compaction.writes_tables() {
            self.failed.take_if(fits);
        }
    }

    /// Begins a search for work.
    pub(super) fn begin_search(&mut self) {
        self.refused.clear();
        self.retry_at = None;
    }

    /// Returns whether a flush may begin at `now`.
    pub(super) fn may_flush(&mut self, now: Duration) -> bool {
        self.is_over(self.flushes.as_ref().map(|stop| stop.retry_at), now)
    }

    /// Returns whether compactions may begin at `now` that [`refuses`](Self::refuses) allows.
    pub(super) fn may_compact(&mut self, now: Duration) -> bool {
        self.is_over(self.compactions.as_ref().map(|stop| stop.retry_at), now)
    }

    /// Returns whether a rebuild of a filter may begin at `now`.
    pub(super) fn may_rebuild(&mut self, now: Duration) -> bool {
        self.is_over(self.filters.as_ref().map(|pause| pause.retry_at), now)
    }

    fn is_over(&mut self, retry_at: Option<Duration>, now: Duration) -> bool {
        let left = retry_at.filter(|at| now < *at);
        left.into_iter().for_each(|at| self.look_at(at));
        left.is_none()
    }

    /// Makes a worker look for work at `time`.
    fn look_at(&mut self, time: Duration) {
        self.retry_at = Some(self.retry_at.map_or(time, |before| before.min(time)));
    }

    /// Returns whether `compaction` of the keyspace `id` must not begin at `now`, while tables
    /// occupy `occupied` bytes.
    pub(super) fn refuses(
        &mut self,
        id: u64,
        compaction: &Compaction,
        (now, occupied): (Duration, i64),
    ) -> bool {
        let failed = self.failed.as_ref().filter(|failed| {
            let freed = failed.occupied - occupied;
            failed.input_bytes <= compaction.input_bytes
                && freed < compaction.input_bytes.cast_signed()
                && compaction.writes_tables()
                && !is_requested(compaction)
        });
        let is_refused = !self.is_over(failed.map(|failed| failed.pause.retry_at), now);
        if is_refused {
            self.refused.insert(id);
        }
        is_refused
    }

    /// Ends all pauses.
    pub(super) fn retry(&mut self) {
        *self = Self::default();
    }

    /// Returns the error of the last flush or compaction that failed, until one succeeds.
    pub(super) fn error(&self) -> Option<&Error> {
        self.flush_error().or_else(|| self.compactions.as_ref().map(|stop| &stop.error))
    }

    /// Returns the error of the last flush if it failed.
    pub(super) fn flush_error(&self) -> Option<&Error> {
        self.flushes.as_ref().map(|stop| &stop.error)
    }

    /// Returns the error of the last rebuild of a filter if it failed.
    pub(super) fn filter_error(&self) -> Option<&Error> {
        self.filters.as_ref().map(|pause| &pause.error)
    }

    /// Returns the error of the refused compactions, if the last search found one.
    pub(super) fn refused(&self) -> Option<&Error> {
        self.with_refused().map(|failed| &failed.pause.error)
    }

    /// Returns the error of the refused compactions, if the last search found one of the keyspace
    /// `id`.
    pub(super) fn refused_of(&self, id: u64) -> Option<&Error> {
        self.refused().filter(|_| self.refused.contains(&id))
    }

    /// Returns when a job may begin that the last search refused, or that has failed since.
    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.retry_at
    }

    /// Returns the least input of refused compactions, in bytes; 0 if none is refused.
    pub(super) fn refused_bytes(&self) -> u64 {
        self.with_refused().map_or(0, |failed| failed.input_bytes)
    }

    fn with_refused(&self) -> Option<&Failed> {
        self.failed.as_ref().filter(|_| !self.refused.is_empty())
    }
}

/// Returns whether a caller waits for `compaction`.
fn is_requested(compaction: &Compaction) -> bool {
    compaction.reason == Reason::Range
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use super::*;

    fn full() -> Error {
        Error::io("append", Path::new("1.sst"), io::Error::from_raw_os_error(28))
    }

    /// The worker of a failed job waits without another search.
    #[test]
    fn a_worker_retries_after_a_failure_at_the_end_of_its_search() {
        let now = Duration::from_secs(1);
        let failures: [fn(&mut FullDisk, Duration); 4] = [
            |disk, now| _ = disk.note_stop(true, &full(), now, true),
            |disk, now| _ = disk.note_stop(false, &full(), now, true),
            |disk, now| disk.note_failure(&Compaction::of_bytes(100), &full(), (now, 0)),
            |disk, now| _ = disk.note_rebuild(Some(&full()), now),
        ];
        for fail in failures {
            let mut disk = FullDisk::default();
            disk.begin_search();
            assert!(disk.may_flush(now) && disk.may_compact(now) && disk.may_rebuild(now));
            assert_eq!(disk.retry_at(), None);
            fail(&mut disk, now);
            assert_eq!(disk.retry_at(), Some(now + PAUSE_MIN));
        }
    }

    #[test]
    fn large_compactions_wait_until_space_is_freed() {
        let mut disk = FullDisk::default();
        let now = Duration::from_secs(1);
        disk.note_failure(&Compaction::of_bytes(100), &full(), (now, 1_000));
        let moved = Compaction { is_trivial_move: true, ..Compaction::of_bytes(500) };
        let requested = Compaction { reason: Reason::Range, ..Compaction::of_bytes(500) };
        let cases = [
            (Compaction::of_bytes(100), 1_000, true),
            (Compaction::of_bytes(99), 1_000, false),
            (Compaction::of_bytes(500), 901, true),
            (Compaction::of_bytes(100), 901, true),
            (Compaction::of_bytes(100), 900, false),
            (Compaction::of_bytes(500), 900, true),
            (moved.clone(), 1_000, false),
            (requested, 1_000, false),
        ];
        for (number, (compaction, occupied, want)) in cases.into_iter().enumerate() {
            disk.begin_search();
            assert_eq!(disk.refuses(7, &compaction, (now, occupied)), want, "case {number}");
            assert_eq!(disk.refused().is_some(), want, "case {number}");
            assert_eq!(disk.refused_of(7).is_some(), want, "case {number}");
            assert!(disk.refused_of(8).is_none(), "case {number}");
        }
        disk.note_success(&Compaction::of_bytes(99));
        disk.note_success(&moved);
        assert!(disk.refuses(7, &Compaction::of_bytes(100), (now, 1_000)));
        disk.note_success(&Compaction::of_bytes(100));
        assert!(!disk.refuses(7, &Compaction::of_bytes(100), (now, 1_000)));
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let mut disk = FullDisk::default();
        let (mut now, mut pauses) = (Duration::ZERO, Vec::new());
        for _ in 0..9 {
            disk.note_failure(&Compaction::of_bytes(100), &full(), (now, 0));
            disk.begin_search();
            // Another worker fails at the same time.
            disk.note_failure(&Compaction::of_bytes(200), &full(), (now, 0));
            assert!(disk.refuses(7, &Compaction::of_bytes(100), (now, 0)));
            let retry_at = disk.retry_at().expect("one is refused");
            pauses.push((retry_at - now).as_millis());
            now = retry_at;
            assert!(!disk.refuses(7, &Compaction::of_bytes(100), (now, 0)));
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    }
}
