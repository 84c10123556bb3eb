//! Pauses between attempts to compact a quarantined table, with an injected clock.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use sievedb::{
    Event, EventListener,
    clock::{Clock as _, ManualClock},
};
use sievedb_doubles::Times;

use super::quarantine::{Failing, KEYS};

/// Longest pause that the documentation of `QuarantinedTable` states: 85 minutes, and 20 s.
const PAUSE_MAX: Duration = Duration::from_secs(10 << 9);
/// Distance of the clock from the end of a pause while the worker waits in real time.
const LAST_WAIT: Duration = Duration::from_millis(10);
/// Maximum number of polls, one per millisecond.
const POLLS_MAX: usize = 60_000;

/// Advances the clock to shortly before the end of the first pause, then reports each event.
#[derive(Debug)]
struct Advancing {
    clock: Arc<ManualClock>,
    events: Mutex<mpsc::Sender<bool>>,
}

impl EventListener for Advancing {
    fn on_event(&self, event: &Event) {
        let is_quarantine = matches!(event, Event::TableQuarantined { .. });
        if is_quarantine {
            // Runs on the worker's thread: its next wait is short.
            self.clock.advance(Duration::from_millis(9_990));
        }
        if is_quarantine || matches!(event, Event::Compacted { .. }) {
            // The test may have ended.
            let _ = self.events.lock().unwrap().send(is_quarantine);
        }
    }
}

#[test]
fn n7_idle_store_rereads_a_table_after_its_pause() {
    let clock = Arc::new(ManualClock::new());
    let (sender, events) = mpsc::channel();
    let listener = Advancing { clock: clock.clone(), events: Mutex::new(sender) };
    let failing = Failing::open(1, clock, &Arc::default(), Arc::new(listener));
    // One table, mostly of tombstones: its compaction is due once the snapshot is dropped.
    let snapshot = failing.db.snapshot();
    (0..3 * KEYS).for_each(|key| failing.db.remove(key.to_be_bytes()).unwrap());
    failing.db.compact().unwrap();
    failing.db.wait_for_background().unwrap();
    while events.try_recv().is_ok() {}
    failing.fail_reads(Times::ForGood, 0);
    drop(snapshot);
    let next = || events.recv_timeout(Duration::from_secs(60));
    assert_eq!(next(), Ok(true), "the compaction fails");
    assert_eq!(failing.quarantined().len(), 1);
    // The worker has checked again; nothing is due.
    failing.db.wait_for_background().unwrap();
    failing.faults.heal();
    failing.clock.advance(Duration::from_millis(20));
    while !failing.quarantined().is_empty() {
        assert!(next().is_ok(), "no worker tries again: {}", failing.db.stats());
    }
}

/// Waits until `done` returns `true`.
fn poll(what: &str, done: impl Fn() -> bool) {
    let is_done = (0..POLLS_MAX).any(|_| {
        thread::sleep(Duration::from_millis(1));
        done()
    });
    assert!(is_done, "{what}");
}

#[test]
fn n7_pauses_of_an_idle_store_grow_to_85_minutes() {
    let failing = Failing::open(1, Arc::new(ManualClock::new()), &Arc::default(), Arc::new(Silent));
    let Failing { db, faults, clock, .. } = &failing;
    let other = db.keyspace("other").unwrap();
    let snapshot = db.snapshot();
    (0..3 * KEYS).for_each(|key| db.remove(key.to_be_bytes()).unwrap());
    db.compact().unwrap();
    db.wait_for_background().unwrap();
    failing.fail_reads(Times::ForGood, 0);
    drop(snapshot);
    poll("the compaction fails", || !failing.quarantined().is_empty());
    for attempt in 0..14 {
        // The attempt has ended, so the pause starts now.
        db.wait_for_background().unwrap();
        let pause = PAUSE_MAX.min(Duration::from_secs(10) * (1 << attempt));
        let end = clock.now() + pause;
        clock.advance(pause - LAST_WAIT);
        let before = faults.failures();
        // The worker checks for work, then waits for the rest of the pause.
        other.insert("key", "value").unwrap();
        other.flush().unwrap();
        db.wait_for_background().unwrap();
        assert!(clock.now() < end);
        assert_eq!(faults.failures(), before, "attempt {attempt} comes before its pause ends");
        clock.advance(LAST_WAIT);
        poll("an idle worker reads the table when its pause ends", || faults.failures() > before);
    }
    faults.heal();
    db.wait_for_background().unwrap();
    clock.advance(PAUSE_MAX - LAST_WAIT);
    other.insert("key", "value").unwrap();
    other.flush().unwrap();
    clock.advance(LAST_WAIT);
    poll("the table is released", || failing.quarantined().is_empty());
}

/// Ignores all events.
#[derive(Debug)]
struct Silent;

impl EventListener for Silent {
    fn on_event(&self, _: &Event) {}
}
