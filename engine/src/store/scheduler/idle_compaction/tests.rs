//! Compactions of an idle store, by a manual clock.

mod aborted;

use std::{
    sync::{Arc, mpsc},
    thread,
};

use super::*;
use crate::{
    Db, KeyspaceOptions, Options,
    clock::ManualClock,
    fs::{Fs, MemoryFs},
    iter::bounds::KeyBounds,
    read::tree::Tree,
    store::scheduler::tests::Compactions,
    tests::{Random, seeds},
};

/// A store whose steps are taken on this thread.
struct Fixture {
    fs: Arc<MemoryFs>,
    clock: Arc<ManualClock>,
    db: Db,
}

fn options(fs: &Arc<MemoryFs>, clock: &Arc<ManualClock>) -> Options {
    let keyspace = KeyspaceOptions::new().memtable_bytes(64 << 20).table_bytes(256 << 10);
    let options = Options::new().fs(Arc::clone(fs) as Arc<dyn Fs>).worker_threads(0);
    options.clock(Arc::clone(clock) as Arc<_>).keyspace(keyspace)
}

impl Fixture {
    fn new() -> Self {
        Self::with_seed(1, |options| options)
    }

    fn with_seed(seed: u64, change: impl FnOnce(Options) -> Options) -> Self {
        let (fs, clock) = (Arc::new(MemoryFs::with_seed(seed)), Arc::<ManualClock>::default());
        let db = change(options(&fs, &clock)).open("db").expect("a new store");
        Self { fs, clock, db }
    }

    fn reopen(self) -> Self {
        let Self { fs, clock, db } = self;
        drop(db);
        let db = options(&fs, &clock).open("db").expect("a good store");
        Self { fs, clock, db }
    }

    fn store(&self) -> &Store {
        self.db.store()
    }

    fn tree(&self) -> Arc<Tree> {
        self.store().versions.trees().get("default").cloned().expect("it is always there")
    }

    fn write(&self, number: u64) {
        self.db.insert(number.to_be_bytes(), [7; 40]).expect("there is room");
    }

    /// Makes a run of level 0 of all keys below `count`.
    fn write_run(&self, count: u64) {
        (0..count).for_each(|number| self.write(number));
        self.db.flush().expect("there is room");
    }

    /// Writes an entry to the keyspace `name`, whose flush no worker is left for.
    fn write_to(&self, name: &str) {
        let keyspace = self.db.keyspace(name).expect("there is room");
        keyspace.insert("key", "value").expect("there is room");
        let tree = self.store().versions.trees().get(name).cloned().expect("it is there");
        let _placement = self.store().writer.placement();
        assert!(tree.freeze());
    }

    fn level0_runs(&self) -> usize {
        self.tree().view().version.level0_runs()
    }

    /// Claims what a worker would do now.
    fn claim(&self) -> Option<Job> {
        let store = self.store();
        while store.step() {}
        store.claim_idle_compaction(&mut store.scheduler.state.lock())
    }

    /// Does all work of an idle store. Returns the bytes rewritten.
    fn rest(&self) -> u64 {
        let read = || self.store().scheduler.done().compaction_bytes_read;
        let mut bytes = 0;
        while let Some(job) = self.claim() {
            let before = read();
            assert!(self.store().carry_out(&job), "there is room");
            bytes += read() - before;
        }
        bytes
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Returns the longest wait of workers.
    fn wait_max(&self) -> Option<Duration> {
        self.store().scheduler.state.lock().idle_compactions.wait_max()
    }
}

#[test]
fn a_short_level_0_goes_down_once_the_store_rests() {
    let fixture = Fixture::new();
    for runs in 1..=2 {
        fixture.write_run(10);
        assert_eq!((fixture.rest(), fixture.level0_runs()), (0, runs));
    }
    assert_eq!(fixture.wait_max(), Some(IDLE));
    fixture.advance(290);
    assert_eq!((fixture.rest(), fixture.level0_runs()), (0, 2), "not idle long enough");
    assert_eq!(fixture.wait_max(), Some(Duration::from_millis(10)));
    fixture.db.insert("z", "1").expect("there is room");
    fixture.advance(290);
    assert_eq!((fixture.rest(), fixture.level0_runs()), (0, 2), "a write ends the idle time");
    assert_eq!(fixture.wait_max(), Some(IDLE));
    fixture.advance(300);
    assert!(fixture.rest() > 0);
    assert_eq!(fixture.level0_runs(), 0);
    fixture.advance(300);
    assert_eq!((fixture.rest(), fixture.wait_max()), (0, None), "no visit is due");
    for _ in 0..9 {
        fixture.db.insert("y", "1").expect("there is room");
        assert_eq!((fixture.rest(), fixture.wait_max()), (0, None), "nothing has changed");
    }
}

#[test]
fn what_was_there_when_the_store_was_opened_waits_longer() {
    let fixture = Fixture::new();
    fixture.write_run(10);
    fixture.write_run(10);
    let fixture = fixture.reopen();
    for ms in [0, 300, 9_000] {
        fixture.advance(ms);
        assert_eq!((fixture.rest(), fixture.level0_runs()), (0, 2));
    }
    assert_eq!(fixture.wait_max(), Some(Duration::from_millis(700)));
    fixture.advance(700);
    assert!(fixture.rest() > 0);
    assert_eq!(fixture.level0_runs(), 0);

    fixture.write_run(1000);
    fixture.write_run(1000);
    let fixture = fixture.reopen();
    fixture.write_run(10);
    fixture.rest();
    fixture.advance(300);
    assert!(fixture.rest() > 0, "a part is new");
    assert_eq!(fixture.level0_runs(), 0);
}

/// Not one in each idle time: an idle store catches up.
#[test]
fn compactions_of_an_idle_store_follow_each_other() {
    let names = ["one", "two", "three"];
    let fixture = Fixture::new();
    let write = |fixture: &Fixture, name: &str| {
        let keyspace = fixture.db.keyspace(name).expect("there is room");
        keyspace.insert("key", "value").expect("there is room");
        keyspace.flush().expect("there is room");
    };
    names.iter().for_each(|name| (0..2).for_each(|_| write(&fixture, name)));
    let fixture = fixture.reopen();
    assert_eq!(fixture.rest(), 0);
    fixture.advance(10_000);
    let first = fixture.claim().expect("it is idle");
    assert!(fixture.store().carry_out(&first), "there is room");
    fixture.write(1);
    assert!(fixture.claim().is_none(), "a write ends the idle time");
    fixture.advance(10_000);
    assert!(fixture.rest() > 0);
    for name in names {
        let tree = fixture.store().versions.trees().get(name).cloned().expect("it exists");
        assert_eq!(tree.view().version.level0_runs(), 0, "{name}");
    }
}

#[test]
fn options_and_stores_without_workers_have_none() {
    type Switch = fn(Options) -> Options;
    let switches: [(&str, Switch); 2] = [
        ("no idle compactions", |options| options.idle_compactions(false)),
        ("no background rewrites", |options| options.background_rewrites(false)),
    ];
    for (name, change) in switches {
        let fixture = Fixture::with_seed(1, change);
        fixture.write_run(10);
        fixture.write_run(10);
        fixture.advance(20_000);
        assert_eq!((fixture.rest(), fixture.level0_runs()), (0, 2), "{name}");
        assert_eq!(fixture.wait_max(), None, "{name}");
    }
    let fixture = Fixture::new();
    fixture.write_run(10);
    fixture.write_run(10);
    fixture.advance(20_000);
    assert!(fixture.store().claim().is_none(), "a store without workers");
}

/// Its output is removed, and it is not started again soon.
#[test]
fn other_work_interrupts_it() {
    type Give = fn(&Fixture);
    let reasons: [(&str, Give); 3] = [
        ("the store closes", |fixture| fixture.store().scheduler.shut_down()),
        ("a flush has no worker", |fixture| {
            fixture.write(0);
            let _placement = fixture.store().writer.placement();
            assert!(fixture.tree().freeze());
        }),
        ("a whole keyspace is requested", |fixture| {
            let tree = fixture.tree();
            fixture
                .store()
                .scheduler
                .request_range(&tree, &KeyBounds::ALL, || 0)
                .expect("no pause");
        }),
    ];
    for (name, give_reason) in reasons {
        let fixture = Fixture::new();
        fixture.write_run(2000);
        fixture.write_run(2000);
        fixture.rest();
        fixture.advance(300);
        let job = fixture.claim().expect("it rests");
        let before = fixture.fs.list("db".as_ref()).expect("a folder").len();
        give_reason(&fixture);
        assert!(fixture.store().carry_out(&job), "{name}: it is no error");
        assert_eq!(fixture.level0_runs(), 2, "{name}");
        fixture.store().unlink_last();
        assert_eq!(fixture.fs.list("db".as_ref()).expect("a folder").len(), before, "{name}");

        while fixture.store().step() {}
        if fixture.store().scheduler.is_shut_down() || fixture.level0_runs() < 2 {
            // The reason stays; or the keyspace was compacted as a whole, for who waited.
            continue;
        }
        assert_eq!(fixture.rest(), 0, "{name}");
        fixture.advance(9_900);
        assert_eq!(fixture.rest(), 0, "{name}");
        fixture.advance(100);
        assert!(fixture.rest() > 0, "{name}");
        assert_eq!(fixture.level0_runs(), 0, "{name}");
    }
}

/// As a flush without a worker does: this job has a worker, which waits.
#[test]
fn a_job_that_waits_for_memory_interrupts_it() {
    let fixture = Fixture::with_seed(1, |options| options.memory_budget(8 << 20));
    fixture.write_run(2000);
    fixture.write_run(2000);
    fixture.rest();
    fixture.advance(300);
    let job = fixture.claim().expect("it rests");
    let store = fixture.store();
    // As the compaction does if it reads long entries.
    let share = store.tables.worker_share();
    let beyond = share.take(share.bytes_max() + 1);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let share = store.tables.worker_share();
            drop(share.take(share.bytes_max() + 1));
        });
        while !store.tables.cache_room.is_awaited() {
            assert!(!other.is_finished(), "it waits");
            thread::yield_now();
        }
        assert!(store.is_worker_needed());
        assert!(store.carry_out(&job), "it is no error");
        assert_eq!(fixture.level0_runs(), 2);
        drop((beyond, share));
        other.join().expect("it only waited");
    });
    assert!(!store.is_worker_needed());
}

/// The bound of [`compaction::idle`](crate::compaction): five bytes for each that a flush has
/// written.
#[test]
fn bursts_with_pauses_write_no_more_than_the_bound() {
    /// Distinct keys, entries of a burst, and whether a burst has keys in a row.
    const KINDS: [(&str, u64, u64, bool); 5] = [
        ("few keys again and again", 100, 300, false),
        ("small bursts into many keys", 20_000, 50, false),
        ("large bursts into many keys", 20_000, 2_000, false),
        ("a row of a few keys", 20_000, 50, true),
        ("a row of many keys", 20_000, 2_000, true),
    ];
    for seed in seeds(2) {
        for (name, keys, entries, in_a_row) in KINDS {
            let fixture = Fixture::with_seed(seed, |options| options);
            let mut random = Random::new(seed);
            let mut quiet = 0;
            for _ in 0..60 {
                let first = random.below(keys);
                for index in 0..1 + random.below(entries) {
                    let key = if in_a_row { (first + index) % keys } else { random.below(keys) };
                    let value = [random.below(256) as u8; 40];
                    fixture.db.insert(key.to_be_bytes(), value).expect("there is room");
                }
                fixture.db.flush().expect("there is room");
                fixture.rest();
                fixture.advance(300);
                quiet += fixture.rest();
            }
            let flushed = fixture.store().scheduler.done().flush_bytes_written;
            assert!(quiet <= 5 * flushed, "{name}, seed {seed}: {quiet} for {flushed}");
        }
    }
}

/// Workers find out by themselves, and wait without a limit afterwards.
#[test]
fn workers_notice_that_the_store_rests() {
    let (sender, compacted) = mpsc::sync_channel(100);
    let fixture = Fixture::with_seed(1, |options| {
        options.worker_threads(2).listener(Arc::new(Compactions(sender)))
    });
    fixture.write_run(10);
    fixture.write_run(10);
    assert_eq!(fixture.level0_runs(), 2);
    fixture.db.wait_for_background().expect("there is room");
    // By now they have seen the last write, or see it when the time is up.
    fixture.advance(300);
    for _ in 0..100 {
        // Earlier visits saw less idle time.
        if compacted.recv_timeout(IDLE).is_ok() {
            break;
        }
        fixture.advance(300);
    }
    assert_eq!(fixture.level0_runs(), 0);
    fixture.db.wait_for_background().expect("there is room");
    drop(fixture.db);
}

/// The only worker may take minutes.
#[test]
fn obsolete_files_do_not_wait_for_it() {
    let fixture = Fixture::new();
    fixture.write_run(10_000);
    fixture.write_run(10_000);
    fixture.rest();
    fixture.advance(300);
    let job = fixture.claim().expect("two runs are merged");
    assert!(matches!(job, Job::CompactIdle(..)), "{job:?}");
    let files = &fixture.store().tables.obsolete_files;
    let path = fixture.store().tables.folder.join("001000.sst");
    files.push(path.clone());
    assert!(fixture.store().carry_out(&job), "there is room");
    assert!(!files.take(usize::MAX).contains(&path));
}

/// Otherwise files that a failed edit of the manifest needs would be lost.
#[test]
fn a_read_only_store_unlinks_nothing_meanwhile() {
    let fixture = Fixture::new();
    let store = fixture.store();
    while store.step() {}
    let files = &store.tables.obsolete_files;
    let push = || files.push(store.tables.folder.join("000900.sst"));
    push();
    store.unlink_meanwhile();
    assert!(files.is_empty());
    push();
    store.poison(crate::Error::WorkerPanicked);
    store.unlink_meanwhile();
    assert!(!files.is_empty());
}
