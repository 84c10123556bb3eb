//! Due work is found, although not all keyspaces are checked.

mod behind;
mod closes;
mod full_disk;
mod ingests;
mod phases;
mod priorities;
mod room_turns;
mod skipped;
mod snapshots;
mod unlinks;
mod urgent;

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::mpsc,
    task::Wake,
    thread,
    time::Duration,
};

use sievedb_format::Corruption;

use super::*;
use crate::{
    Db, Error, Event, EventListener, Keyspace, KeyspaceOptions, Options, Snapshot,
    clock::{Clock as _, ManualClock},
    file_name::FileName,
    fs::{Call, Fault, FaultFs, Fs as _, MemoryFs, Times},
    iter::bounds::KeyBounds,
    read::changed_trees::TreeIds,
    store::{choose::Chosen, compact::Ended},
    tests::{Random, seeds},
};

/// Counts the calls of its waker.
#[derive(Debug)]
pub(super) struct Wakes(AtomicU64);

impl Wakes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(0)))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Calls of a story.
const CALLS: usize = 300;

struct Story {
    random: Random,
    db: Db,
    snapshots: Vec<Snapshot>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(seed))).worker_threads(0);
        let db = options.keyspace(small()).open("db").expect("a new store");
        Self { random: Random::new(seed), db, snapshots: Vec::new() }
    }

    fn keyspace(&mut self) -> Keyspace {
        let name = format!("keyspace {}", self.random.below(6));
        self.db.keyspace_with(&name, &small()).expect("there is room")
    }

    fn call(&mut self) {
        let keyspace = self.keyspace();
        let draw = self.random.below(20);
        match draw {
            0 => self.snapshots.push(self.db.snapshot()),
            1 | 2 => {
                if !self.snapshots.is_empty() {
                    let at = self.random.below(self.snapshots.len() as u64);
                    self.snapshots.swap_remove(at as usize);
                }
            }
            3 => keyspace.flush().expect("there is room"),
            4 => keyspace.compact().expect("there is room"),
            5 if self.random.one_in(4) => {
                assert!(self.db.drop_keyspace(&keyspace.name()).expect("there is room"));
            }
            6 if self.random.one_in(2) => {
                let bits = self.random.below(3) as f64 * 6.0;
                let options = small().range_filter_bits_per_key(bits);
                keyspace.set_options(options).expect("good options");
            }
            7 => {
                keyspace.iter().for_each(|entry| drop(entry.expect("good")));
            }
            _ => {
                let removes = draw.is_multiple_of(2);
                for _ in 0..self.random.below(60) {
                    let key = self.random.below(200).to_be_bytes();
                    let written =
                        if removes { keyspace.remove(key) } else { keyspace.insert(key, [7; 40]) };
                    written.expect("there is room");
                }
            }
        }
    }

    /// Checks every keyspace.
    fn check(&self, when: &str) {
        self.db.wait_for_background().expect("there is room");
        let store = self.db.store();
        let trees: Vec<_> = store.versions.trees().values().cloned().collect();
        for tree in trees {
            let chosen = store.choose_compaction(&tree, &[], None);
            let is_idle = matches!(chosen, Chosen::Nothing { .. });
            assert!(is_idle, "{when}: {}: {chosen:?}", tree.name());
            assert!(tree.view().frozen.is_empty(), "{when}: {}", tree.name());
            let looked = store.filters.is_done_for(&tree);
            assert!(looked, "{when}: {}: filters", tree.name());
        }
    }
}

fn small() -> KeyspaceOptions {
    let options = KeyspaceOptions::new().memtable_bytes(4 << 10).table_bytes(4 << 10);
    options.base_level_bytes(4 << 10).block_bytes(1 << 10)
}

#[test]
fn nothing_that_is_due_is_left() {
    for seed in seeds(6) {
        let mut story = Story::new(seed);
        for call in 0..CALLS {
            story.call();
            if story.random.one_in(8) {
                story.check(&format!("seed {seed}, call {call}"));
            }
        }
        story.snapshots.clear();
        story.check(&format!("seed {seed}, at the end"));
    }
}

/// A thread that waits for all work is notified when a request for a dropped keyspace is withdrawn.
#[test]
fn a_request_that_is_withdrawn_wakes_who_waits() {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.open("db").expect("a new store");
    let keyspace = db.keyspace("gone").expect("there is room");
    let store = db.store();
    let tree = store.versions.trees().get("gone").cloned().expect("it is there");
    let number = store.scheduler.request_range(&tree, &KeyBounds::ALL, || 0).expect("no pause");
    assert!(db.drop_keyspace(&keyspace.name()).expect("there is room"));
    let (ended, waits) = mpsc::channel();
    let waiting = db.clone();
    let waiter = thread::spawn(move || ended.send(waiting.wait_for_background()));
    let early = waits.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "requested work is not done");
    store.scheduler.withdraw_range(&tree, number);
    let idle = waits.recv_timeout(Duration::from_secs(20)).expect("it is woken");
    idle.expect("there is room");
    waiter.join().expect("it has ended").expect("the receiver is alive");
}

/// Work that became due after a request for a whole keyspace is found in the step that ends the
/// request: no change would notify a worker.
#[test]
fn what_is_due_is_found_when_a_request_is_done() {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.open("db").expect("a new store");
    for _ in 0..3 {
        db.insert("key", "value").expect("there is room");
        db.flush().expect("there is room");
    }
    let store = db.store();
    let tree = store.versions.trees().get("default").cloned().expect("it is always there");
    db.insert("key", "value").expect("there is room");
    {
        let _placement = store.writer.placement();
        assert!(tree.freeze());
    }
    let flush = store.claim().expect("a memtable is frozen");
    assert!(store.carry_out(&flush), "there is room");
    assert_eq!(tree.view().version.level0_runs(), 4, "they are due");
    store.scheduler.request_range(&tree, &KeyBounds::ALL, || 0).expect("no pause");
    let job = store.claim();
    assert!(matches!(job, Some(Job::Compact(..))), "it is claimed");
    assert!(store.scheduler.state.lock().requests.is_empty());
}

/// A store with a keyspace, a claimed compaction of it, and the ids of its inputs.
fn with_claimed_compaction() -> (Db, Arc<Tree>, Job, Vec<u64>) {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let options = KeyspaceOptions::new().compression(crate::Compression::None);
    let db = Options::new().fs(fs).worker_threads(0).block_cache_bytes(0);
    let db = db.open("db").expect("a new store");
    let keyspace = db.keyspace_with("large", &options).expect("there is room");
    let store = db.store();
    let tree = store.versions.trees().get("large").cloned().expect("it was created");
    for run in 0..4 {
        for key in 0..20_000_u64 {
            keyspace.insert(key.to_be_bytes(), [run; 150]).expect("there is room");
        }
        {
            let _placement = store.writer.placement();
            assert!(tree.freeze());
        }
        let flush = store.claim().expect("a memtable is frozen");
        assert!(store.carry_out(&flush), "there is room");
    }
    let inputs = tree.view().version.metas().iter().map(|meta| meta.id).collect();
    let job = loop {
        match store.claim().expect("four runs are due") {
            job @ Job::Compact(..) => break job,
            other => assert!(store.carry_out(&other), "there is room"),
        }
    };
    (db, tree, job, inputs)
}

/// The disk space of the keyspace is free once the compaction has ended.
#[test]
fn a_drop_cancels_a_compaction() {
    let (db, tree, job, _) = with_claimed_compaction();
    let Job::Compact(_, compaction) = &job else { panic!("{job:?}") };
    let store = db.store();
    let input: u64 = tree.view().version.metas().iter().map(|meta| meta.bytes).sum();
    let read_before = db.stats().table_reads.bytes;
    let is_dropped = Cell::new(false);
    let drops = || {
        if !is_dropped.replace(true) {
            assert!(db.drop_keyspace("large").expect("there is room"));
        }
        false
    };
    let share = store.tables.worker_share();
    let ended = store.run_compaction(&tree, compaction, &share, &drops).expect("nothing failed");
    assert_eq!(ended, Ended::Interrupted);
    store.scheduler.state.lock().end_claim(&tree, compaction);
    let read = db.stats().table_reads.bytes - read_before;
    assert!(read < input / 2, "{read} of {input} bytes were read");
    store.versions.check_writable().expect("nothing failed");
    db.wait_for_background().expect("there is room");
    let names = store.tables.fs.list("db".as_ref()).expect("it exists");
    assert!(!names.iter().any(|name| name.ends_with(".sst")), "{names:?}");
}

/// The store stays writable: the damaged file is obsolete.
#[test]
fn a_drop_or_clear_makes_a_damaged_input_irrelevant() {
    for is_clear in [true, false] {
        let (db, tree, job, inputs) = with_claimed_compaction();
        let Job::Compact(_, compaction) = &job else { panic!("{job:?}") };
        let store = db.store();
        let path = FileName::Table(inputs[0]).path(&store.tables.folder);
        if is_clear {
            db.keyspace("large").expect("it exists").clear().expect("there is room");
        } else {
            assert!(db.drop_keyspace("large").expect("there is room"));
        }
        let damage = |path| Error::corrupt(path, 0, Corruption::Missing { what: "block" });
        let ended = store.quarantine_input(&tree, compaction, damage(path));
        assert!(matches!(ended, Ok(Ended::Interrupted)), "{ended:?}");
        let manifest = FileName::Current.path(&store.tables.folder);
        store.quarantine_input(&tree, compaction, damage(manifest)).expect_err("no input");
        store.scheduler.state.lock().end_claim(&tree, compaction);
    }
}

/// A compaction in flight ends early, and changes nothing.
#[test]
fn n11_a_close_cancels_a_compaction() {
    let (db, tree, job, before) = with_claimed_compaction();
    let store = db.store();
    let read_before = db.stats().table_reads.bytes;
    store.tables.close();
    assert!(store.carry_out(&job), "it gave way");
    let read = db.stats().table_reads.bytes - read_before;
    let input: u64 = tree.view().version.metas().iter().map(|meta| meta.bytes).sum();
    assert!(read < input / 4, "{read} of {input} bytes were read");
    let after: Vec<_> = tree.view().version.metas().iter().map(|meta| meta.id).collect();
    assert_eq!(after, before);
    assert_eq!(store.scheduler.done().compactions, 0);
    store.versions.check_writable().expect("nothing failed");
    let obsolete = store.tables.obsolete_files.take(usize::MAX);
    assert!(obsolete.is_empty(), "a closing store creates no table: {obsolete:?}");
}

/// Reports compactions.
#[derive(Debug)]
pub(super) struct Compactions(pub(super) mpsc::SyncSender<()>);

impl EventListener for Compactions {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Compacted { .. }) {
            let _ = self.0.send(());
        }
    }
}

#[test]
fn a_shutdown_does_not_wait_for_work_that_panicked() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
    let db = options.open("db").expect("a new store");
    db.insert("key", "value").expect("there is room");
    fs.inject(Fault::panic(Times::Once).calls(&[Call::Create]).suffix(".sst"));
    panic::catch_unwind(AssertUnwindSafe(|| db.flush())).expect_err("the flush panics");
    let ended = db.shutdown(Duration::from_secs(1));
    assert!(matches!(ended, Err(Error::ReadOnly { .. })), "{ended:?}");
}

#[test]
fn n7_workers_wait_no_longer_than_until_the_pause_of_a_quarantine_ends() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let clock = Arc::<ManualClock>::default();
    let options = Options::new().fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
    let options = options.worker_threads(0).idle_compactions(false);
    let db = options.open("db").expect("a new store");
    let store = db.store();
    let wait_max = || store.wait_max(&store.scheduler.state.lock());
    let write_run = || {
        db.insert("key", "value").expect("there is room");
        db.flush().expect("there is room");
    };
    (0..3).for_each(|_| write_run());
    assert_eq!(wait_max(), None);
    let names = fs.list("db".as_ref()).expect("it exists");
    let oldest = names.into_iter().find(|name| name.ends_with(".sst")).expect("a table");
    fs.inject(Fault::new(5, Times::ForGood).calls(&[Call::ReadAt]).suffix(oldest));
    write_run();
    assert_eq!(db.stats().quarantined.len(), 1);
    let wait = wait_max().expect("a limit");
    assert!(!wait.is_zero() && wait <= Duration::from_secs(10), "{wait:?}");
    clock.advance(wait);
    assert!(!wait_max().expect("a limit").is_zero(), "workers would spin");
    fs.heal();
    while store.step() {}
    assert_eq!(wait_max(), None);
}

#[test]
fn n7_workers_of_a_read_only_store_wait_for_no_quarantine() {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
    let db = options.open("db").expect("a new store");
    let store = db.store();
    // Filters are fitted even then.
    while store.step() {}
    store.scheduler.look_again_at(Duration::ZERO, 0);
    store.poison(Error::WorkerPanicked);
    assert!(store.claim().is_none());
    assert_eq!(store.wait_max(&store.scheduler.state.lock()), None, "workers would poll");
}

/// Stops the thread of the worker when background work is put off, and after each flush.
#[derive(Debug)]
struct Stops {
    stopped: mpsc::Sender<()>,
    resume: Mutex<mpsc::Receiver<()>>,
}

impl EventListener for Stops {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::NoSpace { .. } | Event::Flushed { .. }) {
            // Both fail once the test has ended.
            let _ = self.stopped.send(());
            let _ = self.resume.lock().recv();
        }
    }
}

#[test]
fn f4_a_flush_does_not_wait_for_filters_that_are_put_off() {
    let ((sender, stopped), (resume, receiver)) = (mpsc::channel(), mpsc::channel());
    let listener = Stops { stopped: sender, resume: Mutex::new(receiver) };
    let wait = || stopped.recv_timeout(Duration::from_secs(60)).expect("the worker works");
    let go_on = || resume.send(()).expect("the worker waits");
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(1);
    let db = options.listener(Arc::new(listener)).open("db").expect("a new store");
    db.insert("key", "value").expect("there is room");
    go_on();
    db.flush().expect("there is room");
    wait();
    db.insert("more", "value").expect("there is room");
    fs.inject(Fault::new(28, Times::ForGood).calls(&Call::GROWING).suffix(".filter"));
    db.default_keyspace()
        .set_options(KeyspaceOptions::new().range_filter_bits_per_key(12.0))
        .expect("good options");
    wait();
    // While the worker puts the filter off: it has looked for flushes already.
    let store = db.store();
    let tree = store.versions.trees().get("default").cloned().expect("it is always there");
    {
        let _placement = store.writer.placement();
        assert!(tree.freeze());
    }
    store.scheduler.wake();
    go_on();
    wait();
    let is_put_off = store.scheduler.state.lock().full_disk.filter_error().is_some();
    drop(resume);
    assert!(is_put_off, "the flush waited until filters were tried again");
}
