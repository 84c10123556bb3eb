//! Which job is claimed first: of several keyspaces, and during a long compaction.

use std::{fmt, ops::Bound};

use super::{room_turns::Writing, *};
use crate::{Fifo, SizeTiered, compaction::choice::Reason};

pub(super) fn options(workers: usize) -> Options {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(workers);
    let keyspace = KeyspaceOptions::new().compression(crate::Compression::None);
    options.keyspace(keyspace).idle_compactions(false)
}

type Hook = Box<dyn FnMut(&Event) + Send>;

/// Blocks the first flush of each worker, after its end. Passes other events to a hook.
struct Blocks {
    begun: mpsc::Sender<()>,
    ends: Mutex<Vec<mpsc::Receiver<()>>>,
    hook: Mutex<Option<Hook>>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").finish_non_exhaustive()
    }
}

impl EventListener for Blocks {
    fn on_event(&self, event: &Event) {
        let is_flushed = matches!(event, Event::Flushed { .. });
        if let Some(end) = is_flushed.then(|| self.ends.lock().pop()).flatten() {
            self.begun.send(()).expect("the test waits");
            // Fails once the test has ended.
            let _ = end.recv();
            return;
        }
        if let Some(hook) = &mut *self.hook.lock() {
            hook(event);
        }
    }
}

/// A store whose workers are busy until `_ends` are dropped.
pub(super) struct Busy {
    blocks: Arc<Blocks>,
    _ends: Vec<mpsc::Sender<()>>,
    pub(super) db: Db,
}

impl Busy {
    /// Calls `hook` for each event from now on.
    pub(super) fn on_events(&self, hook: impl FnMut(&Event) + Send + 'static) {
        *self.blocks.hook.lock() = Some(Box::new(hook));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may own a handle of the store.
        let hook = self.blocks.hook.lock().take();
        drop(hook);
    }
}

pub(super) fn busy(options: Options) -> Busy {
    let workers = options.worker_threads;
    let (sender, begun) = mpsc::channel();
    let (_ends, ends): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel()).unzip();
    let (ends, hook) = (Mutex::new(ends), Mutex::default());
    let blocks = Arc::new(Blocks { begun: sender, ends, hook });
    let db = options.listener(Arc::clone(&blocks) as _).open("db").expect("a new store");
    for worker in 0..workers {
        freeze(&db, &format!("busy {worker}"), 1);
        db.store().scheduler.wake();
        begun.recv_timeout(Duration::from_secs(60)).expect("the worker flushes");
    }
    Busy { blocks, _ends, db }
}

pub(super) fn tree_of(db: &Db, name: &str) -> Arc<Tree> {
    db.store().versions.trees().get(name).cloned().expect("it exists")
}

/// Freezes a memtable of `name` with `entries` entries.
pub(super) fn freeze(db: &Db, name: &str, entries: u64) {
    let keyspace = db.keyspace(name).expect("there is room");
    for key in 0..entries {
        keyspace.insert(key.to_be_bytes(), [7; 150]).expect("there is room");
    }
    let _placement = db.store().writer.placement();
    assert!(tree_of(db, name).freeze());
}

/// Claims the next job except unlinks and changes of the manifest.
pub(super) fn claim(db: &Db) -> Option<Job> {
    loop {
        match db.store().claim()? {
            job @ (Job::Unlink | Job::Record | Job::Filter(_)) => {
                db.store().carry_out(&job);
            }
            job => return Some(job),
        }
    }
}

/// Adds runs to level 0 of `name` with no other work.
pub(super) fn add_runs(db: &Db, name: &str, runs: usize, entries: u64) {
    for _ in 0..runs {
        freeze(db, name, entries);
        let Some(job @ Job::Flush(_)) = claim(db) else { panic!("a memtable is frozen") };
        assert!(db.store().carry_out(&job), "there is room");
    }
}

/// Claims a long compaction of the whole keyspace "large", of 15,000 entries.
pub(super) fn claim_long(db: &Db) -> Job {
    add_runs(db, "large", 3, 5_000);
    let large = tree_of(db, "large");
    let scheduler = &db.store().scheduler;
    scheduler.request_range(&large, &KeyBounds::ALL, || u64::MAX).expect("no pause");
    let long = claim(db).expect("a range is requested");
    assert!(matches!(&long, Job::Compact(_, it) if it.reason == Reason::Range), "{long:?}");
    long
}

fn keyspace_of(job: &Job) -> String {
    match job {
        Job::Flush(tree) | Job::Compact(tree, _) | Job::CompactIdle(tree, _) => tree.name(),
        _ => panic!("{job:?}"),
    }
}

pub(super) fn level0_runs(db: &Db, name: &str) -> usize {
    tree_of(db, name).view().version.level0_runs()
}

#[test]
fn keyspaces_take_turns() {
    let busy = busy(options(1));
    let (db, names) = (&busy.db, ["a", "b", "c"]);
    names.iter().for_each(|name| freeze(db, name, 1));
    let turns = |is_flush: bool| {
        let mut turns = Vec::new();
        while turns.len() < 6 {
            let job = claim(db).expect("each keyspace has work");
            let name = keyspace_of(&job);
            assert_eq!(matches!(job, Job::Flush(_)), is_flush, "{job:?}");
            assert!(db.store().carry_out(&job), "there is room");
            if is_flush {
                freeze(db, &name, 1);
            } else {
                add_runs(db, &name, 4, 1);
            }
            turns.push(name);
        }
        turns
    };
    assert_eq!(turns(true), ["a", "b", "c", "a", "b", "c"]);
    let pause = db.pause_compactions().expect("none is running");
    while let Some(job) = claim(db) {
        assert!(db.store().carry_out(&job), "there is room");
    }
    names.iter().for_each(|name| add_runs(db, name, 4, 1));
    drop(pause);
    assert_eq!(turns(false), ["a", "b", "c", "a", "b", "c"]);
}

/// Also if the keyspace with other work has its turn.
#[test]
fn level_0_precedes_other_compactions() {
    let db = options(0).open("db").expect("a new store");
    let first = db.keyspace("a").expect("there is room");
    for key in 0..100_u64 {
        first.insert(key.to_be_bytes(), [7; 150]).expect("there is room");
    }
    db.keyspace("b").expect("there is room");
    first.compact().expect("there is room");
    let snapshot = db.snapshot();
    for key in 0..100_u64 {
        first.remove(key.to_be_bytes()).expect("there is room");
    }
    first.compact().expect("there is room");
    add_runs(&db, "b", 4, 1);
    drop(snapshot);
    let job = claim(&db).expect("two are due");
    let Job::Compact(_, compaction) = &job else { panic!("{job:?}") };
    assert_eq!((keyspace_of(&job), compaction.reason), ("b".to_owned(), Reason::Level0));
    assert!(db.store().carry_out(&job));
    let job = claim(&db).expect("tombstones are due");
    assert_eq!(keyspace_of(&job), "a");
    assert!(db.store().carry_out(&job));
}

/// A merge of gigabytes that waits for another one stops writes for as long.
#[test]
fn level_0_that_delays_writes_waits_for_no_long_compaction() {
    let busy = busy(options(2));
    let db = &busy.db;
    let _long = claim_long(db);
    add_runs(db, "small", 11, 700);
    assert!(claim(db).is_none(), "a worker remains while writes are not delayed");
    add_runs(db, "small", 1, 700);
    let job = claim(db).expect("writes are delayed");
    let Job::Compact(_, compaction) = &job else { panic!("{job:?}") };
    assert_eq!((keyspace_of(&job), compaction.reason), ("small".to_owned(), Reason::Level0));
    assert!(compaction.input_bytes > 1 << 20, "it is long: {compaction}");
    assert!(db.store().carry_out(&job), "there is room");
    assert_eq!(level0_runs(db, "small"), 0);
}

/// A store with a write that runs of level 0 in "a" stop.
fn with_stopped() -> (Busy, Writing) {
    let busy = busy(options(1));
    add_runs(&busy.db, "a", 32, 1);
    let write = Writing::begin(&busy.db.keyspace("a").expect("it exists"), 10);
    assert!(write.waits(), "32 runs stop writes");
    (busy, write)
}

/// Runs that a compaction holds stop no write.
#[test]
fn a_compaction_that_begins_lets_stopped_writes_go_on() {
    let (busy, write) = with_stopped();
    let db = &busy.db;
    let merge = claim(db).expect("32 runs are due");
    write.end().expect("it does not wait for the end");
    assert!(db.store().carry_out(&merge), "there is room");
}

/// No compaction reduces them.
#[test]
fn a_search_that_finds_quarantined_runs_lets_stopped_writes_go_on() {
    let (busy, write) = with_stopped();
    let db = &busy.db;
    let (tree, store) = (tree_of(db, "a"), db.store());
    for (_, _, live) in tree.kept_view().version.tables() {
        let damage = Error::corrupt(&*live.path, 0, Corruption::Missing { what: "block" });
        assert!(live.quarantine.set(damage, store.options.clock.now()));
    }
    // As a search whose choice may not begin: no end of a job notifies the writer.
    let state = store.scheduler.state.lock();
    let _ = store.choose_compaction(&tree, &[], None);
    drop(state);
    write.end().expect("it is notified");
}

#[test]
fn runs_of_fifo_delay_no_write_while_some_are_unlinked() {
    let db = options(0).open("db").expect("a new store");
    let style = KeyspaceOptions::new().compaction_style(Fifo::new(10 << 10));
    db.keyspace_with("a", &style).expect("there is room");
    add_runs(&db, "a", 40, 10);
    let Some(Job::Compact(_, compaction)) = claim(&db) else { panic!("40 runs are too many") };
    assert!(compaction.is_unlink);
    assert_eq!(db.store().debt(&tree_of(&db, "a")).level0_runs, 0);
}

/// `compact()` holds all runs of level 0 until it ends.
#[test]
fn newer_runs_are_merged_while_a_range_is_compacted() {
    let db = options(0).open("db").expect("a new store");
    add_runs(&db, "a", 3, 100);
    let (tree, store) = (tree_of(&db, "a"), db.store());
    let next_file_id = || store.tables.next_file_id();
    store.scheduler.request_range(&tree, &KeyBounds::ALL, next_file_id).expect("no pause");
    let range = claim(&db).expect("a range is requested");
    assert_eq!(store.debt(&tree).level0_runs, 0, "the compaction holds them");
    add_runs(&db, "a", 4, 100);
    assert_eq!(store.debt(&tree).level0_runs, 4);
    let merge = claim(&db).expect("four newer runs are due");
    let Job::Compact(_, compaction) = &merge else { panic!("{merge:?}") };
    assert_eq!((compaction.reason, compaction.output_level), (Reason::Level0, 0));
    assert!(store.carry_out(&merge), "there is room");
    assert_eq!((level0_runs(&db, "a"), store.debt(&tree).level0_runs), (4, 1));
    assert!(store.carry_out(&range), "there is room");
    assert!(claim(&db).is_none(), "the newer run stays");
    assert!(store.scheduler.state.lock().requests.is_empty());
    assert_eq!((level0_runs(&db, "a"), store.debt(&tree).level0_runs), (1, 1));
}

/// Otherwise flushes add runs until writes stop.
#[test]
fn newer_size_tiered_runs_are_merged_while_a_range_is_compacted() {
    let db = options(0).open("db").expect("a new store");
    let style = KeyspaceOptions::new().compaction_style(SizeTiered::new());
    db.keyspace_with("a", &style).expect("there is room");
    add_runs(&db, "a", 3, 100);
    let (tree, store) = (tree_of(&db, "a"), db.store());
    let next_file_id = || store.tables.next_file_id();
    store.scheduler.request_range(&tree, &KeyBounds::ALL, next_file_id).expect("no pause");
    let range = claim(&db).expect("a range is requested");
    add_runs(&db, "a", 4, 100);
    let merge = claim(&db).expect("four newer runs are due");
    let Job::Compact(_, compaction) = &merge else { panic!("{merge:?}") };
    assert_eq!((compaction.reason, compaction.output_level), (Reason::SizeTiered, 0));
    assert!(store.carry_out(&merge), "there is room");
    assert_eq!(level0_runs(&db, "a"), 4);
    assert!(store.carry_out(&range), "there is room");
    assert!(claim(&db).is_none(), "the newer run stays");
    assert!(store.scheduler.state.lock().requests.is_empty());
    assert_eq!(level0_runs(&db, "a"), 1);
}

/// A merge beside the first range has runs that the second request waits for.
#[test]
fn a_range_has_the_runs_that_were_merged_before_its_turn() {
    let db = options(0).open("db").expect("a new store");
    add_runs(&db, "a", 3, 100);
    let (tree, store) = (tree_of(&db, "a"), db.store());
    let request = |range: &KeyBounds| {
        let next_file_id = || store.tables.next_file_id();
        store.scheduler.request_range(&tree, range, next_file_id).expect("no pause");
    };
    request(&KeyBounds::ALL);
    let first = claim(&db).expect("a range is requested");
    add_runs(&db, "a", 2, 100);
    request(&KeyBounds::new(&(Bound::Unbounded, Bound::Included(50_u64.to_be_bytes()))));
    add_runs(&db, "a", 2, 100);
    let merge = claim(&db).expect("four newer runs are due");
    assert!(store.carry_out(&merge), "there is room");
    add_runs(&db, "a", 1, 100);
    assert!(store.carry_out(&first), "there is room");
    assert_eq!(level0_runs(&db, "a"), 2);
    let second = claim(&db).expect("the second request is pending");
    let Job::Compact(_, compaction) = &second else { panic!("{second:?}") };
    assert_eq!(compaction.reason, Reason::Range);
    assert!(store.carry_out(&second), "there is room");
    assert!(claim(&db).is_none());
    assert!(store.scheduler.state.lock().requests.is_empty());
    assert_eq!(level0_runs(&db, "a"), 1, "the newest run is behind the limit");
}

/// Flushes with FIFO add any number of runs. After a change of the style they are one merge.
#[test]
fn runs_of_another_style_stop_no_write_while_they_are_merged() {
    let busy = busy(options(1));
    let db = &busy.db;
    let style = KeyspaceOptions::new().compaction_style(Fifo::new(1 << 30));
    let keyspace = db.keyspace_with("a", &style).expect("there is room");
    add_runs(db, "a", 60, 1);
    keyspace.set_options(KeyspaceOptions::new()).expect("good options");
    let merge = claim(db).expect("60 runs are due");
    let Job::Compact(_, compaction) = &merge else { panic!("{merge:?}") };
    assert_eq!(compaction.tables().count(), 60);
    let (sender, written) = mpsc::channel();
    let writer = thread::spawn(move || sender.send(keyspace.insert("key", "value")));
    let result = written.recv_timeout(Duration::from_secs(10));
    assert_eq!(db.store().debt(&tree_of(db, "a")).level0_runs, 0);
    assert!(db.store().carry_out(&merge), "there is room");
    result.expect("it does not wait for the end").expect("there is room");
    writer.join().expect("it has ended").expect("the receiver is alive");
}

/// Runs of a time series overlap nothing. One job for each would stop writes for as long.
#[test]
fn runs_of_another_style_without_overlap_stop_no_write() {
    let busy = busy(options(1));
    let db = &busy.db;
    let style = KeyspaceOptions::new().compaction_style(Fifo::new(1 << 30));
    let keyspace = db.keyspace_with("a", &style).expect("there is room");
    for key in 0..60_u64 {
        keyspace.insert(key.to_be_bytes(), "value").expect("there is room");
        add_runs(db, "a", 1, 0);
    }
    assert_eq!(level0_runs(db, "a"), 60);
    keyspace.set_options(KeyspaceOptions::new()).expect("good options");
    let job = claim(db).expect("60 runs are due");
    let Job::Compact(_, compaction) = &job else { panic!("{job:?}") };
    assert_eq!(compaction.tables().count(), 60);
    assert_eq!(db.store().debt(&tree_of(db, "a")).level0_runs, 0);
    assert!(db.store().carry_out(&job), "there is room");
    assert_eq!(level0_runs(db, "a"), 1);
}

/// While one is merged, writes fill the others again.
#[test]
fn each_stopped_keyspace_has_its_turn() {
    let busy = busy(options(1).clock(Arc::<ManualClock>::default()));
    let (db, names) = (&busy.db, ["a", "b", "c"]);
    let fill = |name: &str| add_runs(db, name, 32 - level0_runs(db, name), 1);
    names.iter().for_each(|name| add_runs(db, name, 32, 1));
    let mut merged = Vec::new();
    for _ in 0..6 {
        names.iter().for_each(|name| db.store().scheduler.note_stopped(tree_of(db, name).id));
        let job = claim(db).expect("merges are due");
        merged.push(keyspace_of(&job));
        assert!(matches!(job, Job::Compact(..)) && db.store().carry_out(&job), "{job:?}");
        fill(&keyspace_of(&job));
    }
    assert_eq!(merged, ["a", "b", "c", "a", "b", "c"]);
}

/// Otherwise a batch over many keyspaces would take milliseconds for each.
#[test]
fn a_batch_is_delayed_once() {
    let clock = Arc::<ManualClock>::default();
    let busy = busy(options(1).clock(Arc::clone(&clock) as _));
    let db = &busy.db;
    let keyspaces = ["a", "b"].map(|name| {
        add_runs(db, name, 20, 1);
        db.keyspace(name).expect("it exists")
    });
    let delay_of = |count: usize| {
        let (start, stalls) = (clock.now(), db.stats().writes.stalls);
        let mut batch = db.batch();
        for keyspace in &keyspaces[..count] {
            batch.insert(keyspace, "key", "value").expect("good keys");
        }
        batch.commit(crate::Durability::Memory).expect("there is room");
        (clock.now() - start, db.stats().writes.stalls - stalls)
    };
    let one = delay_of(1);
    assert!(!one.0.is_zero() && one.1 == 1, "{one:?}");
    assert_eq!(delay_of(2), one);
}
