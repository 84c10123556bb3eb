//! Which job is claimed first: of several keyspaces, and during a long compaction.

use super::*;
use crate::compaction::choice::Reason;

fn options(workers: usize) -> Options {
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(workers);
    let keyspace = KeyspaceOptions::new().compression(crate::Compression::None);
    options.keyspace(keyspace).idle_compactions(false)
}

/// Blocks the first flush, after its end.
#[derive(Debug)]
struct Blocks {
    begun: mpsc::Sender<()>,
    end: Mutex<Option<mpsc::Receiver<()>>>,
}

impl EventListener for Blocks {
    fn on_event(&self, event: &Event) {
        let is_flushed = matches!(event, Event::Flushed { .. });
        let end = is_flushed.then(|| self.end.lock().take()).flatten();
        if let Some(end) = end {
            self.begun.send(()).expect("the test waits");
            // Fails once the test has ended.
            let _ = end.recv();
        }
    }
}

/// A store whose only worker is busy until `_end` is dropped.
struct Busy {
    _end: mpsc::Sender<()>,
    db: Db,
}

fn busy() -> Busy {
    let ((sender, begun), (end, receiver)) = (mpsc::channel(), mpsc::channel());
    let blocks = Blocks { begun: sender, end: Mutex::new(Some(receiver)) };
    let db = options(1).listener(Arc::new(blocks)).open("db").expect("a new store");
    freeze(&db, "default", 1);
    db.store().scheduler.wake();
    begun.recv_timeout(Duration::from_secs(60)).expect("the worker flushes");
    Busy { _end: end, db }
}

fn tree_of(db: &Db, name: &str) -> Arc<Tree> {
    db.store().versions.trees().get(name).cloned().expect("it exists")
}

/// Freezes a memtable of `name` with `entries` entries.
fn freeze(db: &Db, name: &str, entries: u64) {
    let keyspace = db.keyspace(name).expect("there is room");
    for key in 0..entries {
        keyspace.insert(key.to_be_bytes(), [7; 150]).expect("there is room");
    }
    let _placement = db.store().writer.placement();
    assert!(tree_of(db, name).freeze());
}

/// Claims the next job except unlinks and changes of the manifest.
fn claim(db: &Db) -> Option<Job> {
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
fn add_runs(db: &Db, name: &str, runs: usize, entries: u64) {
    for _ in 0..runs {
        freeze(db, name, entries);
        let Some(job @ Job::Flush(_)) = claim(db) else { panic!("a memtable is frozen") };
        assert!(db.store().carry_out(&job), "there is room");
    }
}

fn keyspace_of(job: &Job) -> String {
    match job {
        Job::Flush(tree) | Job::Compact(tree, _) | Job::CompactIdle(tree, _) => tree.name(),
        _ => panic!("{job:?}"),
    }
}

fn level0_runs(db: &Db, name: &str) -> usize {
    tree_of(db, name).view().version.level0_runs()
}

#[test]
fn keyspaces_take_turns() {
    let busy = busy();
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

/// Otherwise a compaction of gigabytes stops writes, with one worker.
#[test]
fn a_compaction_carries_out_what_is_urgent() {
    let busy = busy();
    let (db, store) = (&busy.db, busy.db.store());
    add_runs(db, "large", 3, 2_000);
    let large = tree_of(db, "large");
    store.scheduler.request_range(&large, &KeyBounds::ALL, || u64::MAX).expect("no pause");
    let long = claim(db).expect("a range is requested");
    assert!(matches!(&long, Job::Compact(_, it) if it.reason == Reason::Range), "{long:?}");
    add_runs(db, "small", 4, 10);
    freeze(db, "other", 10);
    let before = db.stats().background;
    assert!(store.carry_out(&long), "there is room");
    let after = db.stats().background;
    assert_eq!(after.flushes - before.flushes, 1);
    assert_eq!(after.compactions - before.compactions, 2, "level 0, and the requested range");
    assert_eq!((level0_runs(db, "small"), level0_runs(db, "large")), (0, 0));
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
