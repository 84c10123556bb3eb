//! Compactions on a full disk.
//!
//! A compaction that finds no space writes until the disk is full. So compactions with as much
//! input are refused until the store has freed that many bytes, or for a pause. The first pause
//! takes [`PAUSE_MIN`]; each further failure doubles it, up to [`PAUSE_MAX`]. Flushes and smaller
//! compactions continue. Compactions that a caller requested are not refused: the caller gets the
//! error.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    Error,
    compaction::choice::{Compaction, Reason},
};

/// First pause after a failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause: other processes free space without a notification.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The failed compactions.
#[derive(Debug, Default)]
pub(super) struct FullDisk {
    failed: Option<Failed>,
    /// Keyspaces with a compaction that the last search for work refused.
    refused: BTreeSet<u64>,
}

#[derive(Debug)]
struct Failed {
    error: Error,
    /// Least input of those that failed.
    input_bytes: u64,
    /// Bytes that tables occupied, from an arbitrary start.
    occupied: i64,
    pause: Duration,
    retry_at: Duration,
}

impl FullDisk {
    /// Notes that `compaction` failed with `error` at `now`, while tables occupied `occupied`
    /// bytes.
    pub(super) fn note_failure(
        &mut self,
        compaction: &Compaction,
        error: &Error,
        (now, occupied): (Duration, i64),
    ) {
        let before = self.failed.take();
        let pause = before.as_ref().map_or(PAUSE_MIN, |failed| match now < failed.retry_at {
            // It began before the other one failed.
            true => failed.pause,
            false => PAUSE_MAX.min(failed.pause * 2),
        });
        let unexpired = before.filter(|failed| now < failed.retry_at);
        let input_bytes = unexpired.map_or(u64::MAX, |failed| failed.input_bytes);
        self.failed = Some(Failed {
            error: error.clone(),
            input_bytes: input_bytes.min(compaction.input_bytes),
            occupied,
            pause,
            retry_at: now + pause,
        });
    }

    /// Notes that `compaction` is installed: the disk has room for as much input.
    pub(super) fn note_success(&mut self, compaction: &Compaction) {
        let fits = |failed: &mut Failed| failed.input_bytes <= compaction.input_bytes;
        if compaction.writes_tables() {
            self.failed.take_if(fits);
        }
    }

    /// Returns whether `compaction` of the keyspace `id` must not begin at `now`, while tables
    /// occupy `occupied` bytes.
    pub(super) fn refuses(
        &mut self,
        id: u64,
        compaction: &Compaction,
        (now, occupied): (Duration, i64),
    ) -> bool {
        let refuses = self.failed.as_ref().is_some_and(|failed| {
            let freed = failed.occupied - occupied;
            now < failed.retry_at
                && failed.input_bytes <= compaction.input_bytes
                && freed < compaction.input_bytes.cast_signed()
        });
        let is_refused = refuses && compaction.writes_tables() && !is_requested(compaction);
        if is_refused {
            self.refused.insert(id);
        }
        is_refused
    }

    /// Begins a search for work.
    pub(super) fn begin_search(&mut self) {
        self.refused.clear();
    }

    /// Ends all pauses.
    pub(super) fn retry(&mut self) {
        *self = Self::default();
    }

    /// Returns the error of the refused compactions, if the last search found one.
    pub(super) fn refused(&self) -> Option<&Error> {
        self.with_refused().map(|failed| &failed.error)
    }

    /// Returns the error of the refused compactions, if the last search found one of the keyspace
    /// `id`.
    pub(super) fn refused_of(&self, id: u64) -> Option<&Error> {
        self.refused().filter(|_| self.refused.contains(&id))
    }

    /// Returns when a refused compaction may begin, if the last search found one.
    pub(super) fn retry_at(&self) -> Option<Duration> {
        self.with_refused().map(|failed| failed.retry_at)
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
