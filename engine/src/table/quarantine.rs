//! The quarantine of one table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;

use crate::Error;

/// First pause before compactions retry a table after read errors. Doubles each time, up to
/// [`PAUSE_DOUBLINGS`] times: 10 s to 85 minutes.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const PAUSE_DOUBLINGS: u32 = 9;

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    present: ArcSwapOption<Quarantined>,
    /// Number of compactions aborted by a read error of this table.
    read_errors: AtomicU32,
}

/// Cause and duration of a quarantine.
#[derive(Debug)]
pub(crate) struct Quarantined {
    pub(crate) error: Error,
    /// Time of the store's clock from which compactions may read the table again. `None`: only on
    /// request of a caller.
    retry_at: Option<Duration>,
    /// Number of quarantines since the table was opened.
    times: u32,
}

impl Quarantine {
    /// Counts a compaction aborted by a read error of this table. Returns the new count.
    pub(crate) fn count_read_error(&self) -> u32 {
        self.read_errors.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// Quarantines the table at `now` because of `error`. Returns `false` if it was already
    /// quarantined.
    pub(crate) fn set(&self, error: Error, now: Duration) -> bool {
        let before = self.present.load();
        let times = before.as_ref().map_or(0, |before| before.times);
        let pause = FIRST_PAUSE * (1 << times.min(PAUSE_DOUBLINGS));
        // Damage is permanent, while a device may recover.
        let retry_at =
            matches!(error, Error::Io { .. }).then(|| now.checked_add(pause).unwrap_or(now));
        self.present.store(Some(Arc::new(Quarantined { error, retry_at, times: times + 1 })));
        before.is_none()
    }

    /// Returns the time of the store's clock from which compactions may read the table. `None`:
    /// only on request.
    pub(crate) fn retry_at(&self) -> Option<Duration> {
        self.present.load().as_ref().and_then(|it| it.retry_at)
    }

    /// Ends the quarantine: the table is readable.
    pub(crate) fn lift(&self) {
        self.present.store(None);
    }

    /// Allows the next compaction to read the table.
    pub(crate) fn retry(&self) {
        if let Some(before) = self.present.load_full() {
            let Quarantined { ref error, times, .. } = *before;
            let retry_at = Some(Duration::ZERO);
            self.present.store(Some(Arc::new(Quarantined {
                error: error.clone(),
                retry_at,
                times,
            })));
        }
    }

    pub(crate) fn present(&self) -> Option<Arc<Quarantined>> {
        self.present.load_full()
    }

    /// Returns `true` if compactions must not read the table at `now`.
    pub(crate) fn is_in_force(&self, now: Duration) -> bool {
        let present = self.present.load();
        present.as_ref().is_some_and(|it| it.retry_at.is_none_or(|retry_at| now < retry_at))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use sievedb_format::Corruption;

    use super::*;

    fn corrupt() -> Error {
        Error::corrupt("1.sst", 0, Corruption::Missing { what: "test" })
    }

    #[test]
    fn n7_read_errors_are_retried_and_damage_only_on_request() {
        let quarantine = Quarantine::default();
        let mut now = Duration::from_secs(1);
        assert!(!quarantine.is_in_force(now));
        // Ten pauses that grow, and then 85 minutes and 20 s each time.
        let growing = (0..10).map(|times| 10 << times);
        for (times, pause) in growing.chain([5_120; 40]).enumerate() {
            let error = Error::io("read", "1.sst", io::Error::from_raw_os_error(5));
            assert_eq!(quarantine.set(error, now), times == 0);
            now += Duration::from_secs(pause - 1);
            assert!(quarantine.is_in_force(now));
            now += Duration::from_secs(1);
            assert!(!quarantine.is_in_force(now) && quarantine.present().is_some());
        }
        assert!(!quarantine.set(corrupt(), now));
        assert!(quarantine.is_in_force(now + Duration::from_hours(10_000)));
        quarantine.retry();
        assert!(!quarantine.is_in_force(now) && quarantine.present().is_some());
        quarantine.set(corrupt(), now);
        assert!(quarantine.is_in_force(now));
        quarantine.lift();
        assert!(!quarantine.is_in_force(now) && quarantine.present().is_none());
    }
}
