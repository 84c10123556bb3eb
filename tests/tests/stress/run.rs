//! Runs the threads, and compares the final contents with their writes.

use std::{
    process,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, Scope},
    time::Duration,
};

use sievedb::{
    Batch, Db, Durability, Keyspace,
    clock::{Clock, SystemClock},
    stats::BackgroundStats,
};
use sievedb_tests::settings::report;

use super::{
    check::{Progress, Seen, check_get},
    history::{
        KEYS, THREADS, batch_end, is_mirrored, is_removal, key_of, state_after, stored_key, value,
    },
    random::{Random, seed},
    small_options,
};

/// Keyspace with a second copy of half of the keys.
const MIRROR: &str = "mirror";
/// Without any write for this time, the store hangs.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Additional time for a busy machine to do enough work.
const EXTRA_TIME_MAX: Duration = Duration::from_secs(120);

/// Shared state of all threads.
pub(super) struct Shared {
    pub(super) db: Db,
    pub(super) mirror: Keyspace,
    pub(super) progress: Progress,
    pub(super) seed: u64,
    stop: AtomicBool,
}

impl Shared {
    /// Returns whether the time is over, or a thread has found a wrong result.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Stops all threads when one ends, also by a panic.
struct StopOnDrop<'a>(&'a Shared);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

/// Arguments of `start_more`, which starts additional threads.
#[derive(Clone, Copy)]
pub(super) struct More<'scope, 'env> {
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) shared: &'scope Shared,
}

/// Runs the threads for `time`, with those of `start_more`, on a new store.
pub(super) fn run(time: Duration, start_more: impl FnOnce(More<'_, '_>)) {
    let dir = tempfile::tempdir().unwrap();
    let db = small_options().open(dir.path()).unwrap();
    let mirror = db.keyspace(MIRROR).unwrap();
    let (progress, stop) = (Progress::default(), AtomicBool::new(false));
    let shared = Shared { db, mirror, progress, seed: seed(), stop };
    thread::scope(|scope| {
        for number in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                let _stop = StopOnDrop(shared);
                Worker::new(shared, number).run();
            });
        }
        start_more(More { scope, shared: &shared });
        wait(&shared, time);
    });
    let stats = shared.db.stats();
    let writes = shared.progress.total();
    println!("{writes} writes, {:?}, {:?}", stats.background, stats.lookups);
    assert_eq!(stats.read_only, None);
    assert!(is_enough(stats.background), "too few writes: {:?}", stats.background);

    let Shared { db, mirror, progress, .. } = shared;
    check_all(&db, &mirror, &progress);
    drop((db, mirror));
    let db = small_options().open(dir.path()).unwrap();
    let mirror = db.keyspace(MIRROR).unwrap();
    check_all(&db, &mirror, &progress);
    db.compact().unwrap();
    check_all(&db, &mirror, &progress);
}

/// Returns whether tables were created and deleted during the run.
fn is_enough(done: BackgroundStats) -> bool {
    done.flushes > 5 && done.compactions > 2
}

/// Waits until the time is over and enough was done. Ends the process if no thread makes progress.
fn wait(shared: &Shared, time: Duration) {
    let _stop = StopOnDrop(shared);
    let clock = SystemClock::new();
    let (mut writes, mut since) = (0, clock.now());
    let is_up = || {
        let now = clock.now();
        now >= time && (now >= time + EXTRA_TIME_MAX || is_enough(shared.db.stats().background))
    };
    while !is_up() && !shared.is_over() {
        clock.sleep(Duration::from_millis(50));
        if shared.progress.total() != writes {
            (writes, since) = (shared.progress.total(), clock.now());
        } else if clock.now() - since > STALL_MAX {
            // A process that aborts prints no captured output.
            let (seed, stats) = (shared.seed, shared.db.stats());
            report(&format!("SIEVE_SEED={seed}: no write in {STALL_MAX:?}: {stats}"));
            process::abort();
        }
    }
}

/// Checks all contents after the last write.
fn check_all(db: &Db, mirror: &Keyspace, progress: &Progress) {
    let all = Seen::collect(Seen::ALL, db.iter(), false);
    all.check(progress, &progress.all_acknowledged(), false);
    let mirrored = Seen::collect(Seen::ALL, mirror.iter().rev(), true);
    all.check_mirror(&mirrored);
    for thread in 0..THREADS {
        let number = progress.acknowledged(thread);
        for key in 0..KEYS {
            let found = db.get(stored_key(thread, key)).unwrap();
            check_get(thread, key, found.as_deref(), number, number);
        }
    }
}

/// A thread that writes its own keys and reads all.
struct Worker<'a> {
    shared: &'a Shared,
    thread: u32,
    written: u64,
    random: Random,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, thread: u32) -> Self {
        let random = Random::new(shared.seed << 8 | u64::from(thread));
        Self { shared, thread, written: 0, random }
    }

    fn run(mut self) {
        while !self.shared.is_over() {
            match self.random.below(1000) {
                0..500 => self.write(),
                500..960 => self.get(),
                960..990 => self.scan(),
                990..995 => self.snapshot(),
                _ => self.scan_all(),
            }
        }
    }

    /// Makes the next write, or the next few as one batch.
    fn write(&mut self) {
        let Shared { db, mirror, progress, .. } = self.shared;
        let (first, last) = (self.written + 1, batch_end(self.thread, self.written + 1));
        progress.begin(self.thread, last);
        let key = key_of(self.thread, first);
        if first == last && !is_mirrored(key) {
            let stored = stored_key(self.thread, key);
            let written = if is_removal(self.thread, first) {
                db.remove(stored)
            } else {
                db.insert(stored, value(self.thread, key, first))
            };
            written.unwrap();
        } else {
            let mut batch = db.batch();
            for number in first..=last {
                let key = key_of(self.thread, number);
                self.add(&mut batch, db.default_keyspace(), number);
                if is_mirrored(key) {
                    self.add(&mut batch, mirror, number);
                }
            }
            let durability = match self.random.below(500) {
                0..200 => Durability::Memory,
                200..499 => Durability::OsBuffer,
                _ => Durability::Disk,
            };
            batch.commit(durability).unwrap();
        }
        progress.acknowledge(self.thread, last);
        self.written = last;
    }

    fn add(&self, batch: &mut Batch, keyspace: &Keyspace, number: u64) {
        let key = key_of(self.thread, number);
        let stored = stored_key(self.thread, key);
        if is_removal(self.thread, number) {
            batch.remove(keyspace, stored).unwrap();
        } else {
            batch.insert(keyspace, stored, value(self.thread, key, number)).unwrap();
        }
    }

    /// Looks up a key of any thread.
    fn get(&mut self) {
        let Shared { db, mirror, progress, .. } = self.shared;
        let (owner, key) = (self.random.below(THREADS), self.random.below(KEYS));
        let stored = stored_key(owner, key);
        let least = progress.acknowledged(owner);
        match self.random.below(8) {
            0 => {
                let found = mirror.get(stored).unwrap();
                if is_mirrored(key) {
                    check_get(owner, key, found.as_deref(), least, progress.begun(owner));
                } else {
                    assert_eq!(found, None, "{owner}/{key} was never in the mirror");
                }
            }
            1 => {
                let is_there = db.may_contain(stored);
                let states = least..=progress.begun(owner);
                let mut states = states.map(|number| state_after(owner, key, number));
                assert!(is_there || states.any(|state| state.is_none()), "{owner}/{key} is lost");
            }
            2 => {
                let is_there = db.contains_key(stored).unwrap();
                let states = least..=progress.begun(owner);
                let mut states = states.map(|number| state_after(owner, key, number));
                assert!(states.any(|state| state.is_some() == is_there), "{owner}/{key}");
            }
            _ => {
                let found = db.get(stored).unwrap();
                check_get(owner, key, found.as_deref(), least, progress.begun(owner));
            }
        }
    }

    /// Reads a small range as it is now.
    fn scan(&mut self) {
        let Shared { db, progress, .. } = self.shared;
        let start = self.random.below(KEYS);
        let keys = start..(start + 1 + self.random.below(20)).min(KEYS);
        let least = progress.all_acknowledged();
        let range = db.range(Seen::bounds(&keys));
        let seen = if self.random.below(2) == 0 {
            Seen::collect(keys, range, false)
        } else {
            Seen::collect(keys, range.rev(), true)
        };
        seen.check(progress, &least, false);
    }

    /// Reads everything as it is now.
    fn scan_all(&mut self) {
        let Shared { db, mirror, progress, .. } = self.shared;
        let least = progress.all_acknowledged();
        if self.random.below(2) == 0 {
            Seen::collect(Seen::ALL, db.iter(), false).check(progress, &least, false);
        } else {
            Seen::collect(Seen::ALL, mirror.iter(), false).check(progress, &least, true);
        }
    }

    /// Reads both keyspaces from one snapshot in both directions, with writes in between.
    fn snapshot(&mut self) {
        let Shared { db, mirror, progress, .. } = self.shared;
        let least = progress.all_acknowledged();
        let snapshot = db.snapshot();
        for _ in 0..self.random.below(100) {
            self.write();
        }
        let all = Seen::collect(Seen::ALL, snapshot.iter(), false);
        all.check(progress, &least, false);
        let mirrored = snapshot.keyspace(mirror).unwrap();
        all.check_mirror(&Seen::collect(Seen::ALL, mirrored.iter().rev(), true));
        let (owner, key) = (self.random.below(THREADS), self.random.below(KEYS));
        let stored = stored_key(owner, key);
        if is_mirrored(key) {
            assert_eq!(snapshot.get(stored).unwrap(), mirrored.get(stored).unwrap());
        }
        assert!(all == Seen::collect(Seen::ALL, snapshot.iter().rev(), true), "a snapshot changed");
    }
}
