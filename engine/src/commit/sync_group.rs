//! Size of the groups of writers that one sync serves.
//!
//! Threads that write in a loop split into two groups: one waits while the sync of the other runs.
//! A sync that first waits for the writers of the last sync serves both groups. After a wait that
//! timed out, the next waits are skipped, up to [`SKIPPED_MAX`].

use std::time::Duration;

/// Minimum time of a sync that justifies a wait: a shorter sync costs no more than the
/// notification.
const SYNC_MIN: Duration = Duration::from_micros(20);

/// Maximum time without another writer before a wait ends.
const PAUSE_MAX: Duration = Duration::from_micros(500);

/// Maximum wait for a group.
const WAIT_MAX: Duration = Duration::from_millis(2);

/// Maximum number of waits that are skipped after one that timed out.
const SKIPPED_MAX: u32 = 63;

/// The group that the next sync is expected to serve.
#[derive(Debug, Default)]
pub(super) struct SyncGroup {
    /// Writers that the last sync served, and those that waited when it ended.
    writers: usize,
    sync_time: Duration,
    /// Number of waits still to skip.
    skipped: u32,
    /// Waits to skip after the next one that times out.
    penalty: u32,
}

/// Limits of the wait of a thread for others before it syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupWait {
    /// Writers that end the wait.
    pub(super) writers: usize,
    /// Time without another writer after which the wait ends.
    pub(super) pause: Duration,
    /// Maximum time of the wait.
    pub(super) limit: Duration,
}

impl SyncGroup {
    /// Begins a sync for `writers` writers, including the syncing thread. Returns the wait for more
    /// writers, or `None` if no wait is expected to pay.
    pub(super) fn begin(&mut self, writers: usize) -> Option<GroupWait> {
        // One in eight may be late.
        let expected = self.writers - self.writers / 8;
        if writers >= expected || self.sync_time < SYNC_MIN {
            return None;
        }
        if self.skipped > 0 {
            self.skipped -= 1;
            return None;
        }
        Some(GroupWait {
            writers: expected,
            pause: (self.sync_time / 2).min(PAUSE_MAX),
            limit: (self.sync_time * 4).min(WAIT_MAX),
        })
    }

    /// Records the end of a wait.
    pub(super) fn note_wait(&mut self, wait: GroupWait, writers: usize) {
        if writers >= wait.writers {
            self.penalty = 0;
            return;
        }
        self.penalty = (2 * self.penalty + 1).min(SKIPPED_MAX);
        self.skipped = self.penalty;
    }

    /// Records a sync that took `time` and served `served` writers. `waiting` writers began to wait
    /// meanwhile.
    pub(super) fn note_sync(&mut self, time: Duration, served: usize, waiting: usize) {
        self.sync_time = time;
        self.writers = served + waiting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(80);

    #[test]
    fn a_lone_writer_never_waits() {
        let mut group = SyncGroup::default();
        for _ in 0..10 {
            assert_eq!(group.begin(1), None);
            group.note_sync(SYNC, 1, 0);
        }
    }

    #[test]
    fn a_sync_waits_for_the_writers_of_the_last_one() {
        let mut group = SyncGroup::default();
        group.note_sync(SYNC, 4, 4);
        let wait = group.begin(4).expect("four more are expected");
        let pause = Duration::from_micros(40);
        assert_eq!(wait, GroupWait { writers: 7, pause, limit: Duration::from_micros(320) });
        assert_eq!(group.begin(7), None, "one may be late");
        group.note_sync(Duration::from_secs(1), 4, 4);
        let wait = group.begin(4).expect("four more are expected");
        assert_eq!((wait.pause, wait.limit), (PAUSE_MAX, WAIT_MAX));
        group.note_sync(Duration::from_micros(5), 4, 4);
        assert_eq!(group.begin(4), None, "a fast disk is not waited for");
    }

    /// Writers that do other work between their writes cost few waits.
    #[test]
    fn vain_waits_become_rare() {
        let mut group = SyncGroup::default();
        let mut waits = 0;
        for _ in 0..1000 {
            group.note_sync(SYNC, 1, 1);
            if let Some(wait) = group.begin(1) {
                waits += 1;
                group.note_wait(wait, 1);
            }
        }
        assert!((15..=25).contains(&waits), "{waits} waits of 1,000 syncs timed out");
        group.note_sync(SYNC, 1, 1);
        let wait = std::iter::repeat_with(|| group.begin(1)).take(100).flatten().next();
        group.note_wait(wait.expect("at most 63 are skipped"), 2);
        assert!(group.begin(1).is_some(), "a wait that paid ends the penalty");
    }
}
