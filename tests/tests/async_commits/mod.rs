//! Asynchronous commits and the durable watermark.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

pub(crate) mod executor;
mod failures;
mod held_syncs;
pub(crate) mod power_cuts;
mod stalls;
mod threads;

use std::{sync::Arc, task::Poll, thread, time::Duration};

use sievedb::{CommitFuture, Db, Durability, Error, Options, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use self::{
    executor::{block_on, poll_once},
    held_syncs::held_syncs,
};

fn open(fs: &Arc<impl Fs + 'static>, workers: usize) -> Db {
    let options = small_options(Arc::clone(fs) as Arc<dyn Fs>).worker_threads(workers);
    options.open(STORE_DIR).unwrap()
}

fn insert_async(db: &Db, key: &str, durability: Durability) -> Result<CommitFuture, Error> {
    let mut batch = db.batch();
    batch.insert(db, key, "value")?;
    batch.commit_async(durability)
}

/// Returns whether `key` survives a power cut now.
fn survives(disk: &MemoryFs, key: &str) -> bool {
    let left = Arc::new(disk.crash(disk.operations(), &Loss::Everything));
    open(&left, 0).contains_key(key).unwrap()
}

#[test]
fn asynchronous_commits_are_visible_at_once_and_resolve_when_durable() {
    let fs = held_syncs();
    let disk = &fs.0.disk;
    let db = open(&fs, 2);
    let hold = fs.0.hold();
    let mut commit = insert_async(&db, "a", Durability::Disk).unwrap();
    assert!(db.contains_key("a").unwrap());
    hold.wait_for_sync();
    assert!(poll_once(&mut commit).is_pending());
    assert!(db.durable_sequence() < commit.sequence());
    assert!(!survives(disk, "a"));
    // In the page cache at once, although a sync is in flight.
    let sequence = insert_async(&db, "b", Durability::Memory).unwrap().wait().unwrap();
    assert!(sequence > commit.sequence() && sequence > db.durable_sequence());
    drop(hold);
    let expected = commit.sequence();
    assert_eq!(block_on(commit).unwrap(), expected);
    assert!(db.durable_sequence() >= expected && survives(disk, "a"));
}

#[test]
fn single_writes_are_visible_at_once_and_resolve_when_durable() {
    let fs = held_syncs();
    let disk = &fs.0.disk;
    let db = open(&fs, 2);
    let synced = db.default_keyspace().with_durability(Durability::Disk);
    block_on(synced.insert_async("b", "1").unwrap()).unwrap();
    let hold = fs.0.hold();
    let mut insert = synced.insert_async("a", "1").unwrap();
    hold.wait_for_sync();
    let mut remove = synced.remove_async("b").unwrap();
    assert!(db.contains_key("a").unwrap() && !db.contains_key("b").unwrap());
    assert!(poll_once(&mut insert).is_pending() && poll_once(&mut remove).is_pending());
    assert!(!survives(disk, "a") && survives(disk, "b"));
    // Resolves at once: its handle does not ask for a sync.
    let in_memory = db.default_keyspace().with_durability(Durability::Memory);
    let sequence = in_memory.insert_async("c", "1").unwrap().wait().unwrap();
    assert!(sequence > remove.sequence() && sequence > db.durable_sequence());
    drop(hold);
    assert!(block_on(insert).unwrap() < remove.sequence());
    block_on(remove).unwrap();
    assert!(survives(disk, "a") && !survives(disk, "b"));
    let too_long = db.remove_async(vec![0; sievedb::KEY_BYTES_MAX + 1]);
    assert!(matches!(too_long, Err(Error::KeyTooLong { .. })), "{too_long:?}");
}

#[test]
fn asynchronous_values_have_the_default_ttl() {
    let db = open(&Arc::new(MemoryFs::new()), 0);
    let options = sievedb::KeyspaceOptions::new().default_ttl(Duration::from_secs(60));
    let sessions = db.keyspace_with("sessions", &options).unwrap();
    sessions.insert_async("a", "1").unwrap().wait().unwrap();
    sessions.try_insert("b", "1").unwrap();
    for key in ["a", "b"] {
        let ttl = sessions.ttl(key).unwrap();
        assert!(matches!(ttl, Some(sievedb::TimeToLive::Remaining(_))), "{key}: {ttl:?}");
    }
}

#[test]
fn commits_return_their_sequence_number_and_have_the_durability_of_the_store() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let db = small_options(fs).durability(Durability::Disk).open(STORE_DIR).unwrap();
    let mut batch = db.batch();
    assert_eq!((batch.commit(None).unwrap(), batch.try_commit(None).unwrap()), (0, 0));
    assert_eq!(db.begin().commit(None).unwrap(), 0);
    let mut last = db.snapshot().sequence();
    for call in ["commit", "try_commit", "commit_async", "try_commit_async", "transaction"] {
        batch.insert(&db, "a", call).unwrap();
        batch.insert(&db, "b", call).unwrap();
        let sequence = match call {
            "commit" => batch.commit(None),
            "try_commit" => batch.try_commit(None),
            "commit_async" => batch.commit_async(None).unwrap().wait(),
            "try_commit_async" => batch.try_commit_async(None).unwrap().wait(),
            _ => {
                batch.clear();
                let mut transaction = db.begin();
                transaction.insert(&db, "a", call).unwrap();
                transaction.insert(&db, "b", call).unwrap();
                transaction.commit(None)
            }
        };
        let sequence = sequence.unwrap();
        assert_eq!((sequence, db.snapshot().sequence()), (last + 2, last + 2), "{call}");
        assert!(db.durable_sequence() >= sequence, "{call}");
        last = sequence;
    }
}

/// The next group is collected while the last one is synced.
#[test]
fn one_sync_makes_many_commits_durable() {
    let fs = held_syncs();
    let db = open(&fs, 2);
    let hold = fs.0.hold();
    let first = insert_async(&db, "first", Durability::Disk).unwrap();
    hold.wait_for_sync();
    let before = fs.0.syncs();
    let commits: Vec<_> =
        (0..40).map(|n| insert_async(&db, &format!("key{n}"), Durability::Disk).unwrap()).collect();
    drop(hold);
    first.wait().unwrap();
    for commit in commits {
        commit.wait().unwrap();
    }
    // The records may be in two segments.
    let syncs = fs.0.syncs() - before;
    assert!((1..=3).contains(&syncs), "{syncs} syncs for 41 commits");
}

#[test]
fn without_workers_a_poll_syncs() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk, 0);
    let commit = insert_async(&db, "a", Durability::Disk).unwrap();
    let mut other = insert_async(&db, "b", Durability::Disk).unwrap();
    assert!(db.durable_sequence() < commit.sequence() && !survives(&disk, "a"));
    let Poll::Ready(polled) = poll_once(&mut other) else { panic!("a poll syncs") };
    assert_eq!(polled.unwrap(), other.sequence());
    assert!(db.durable_sequence() >= other.sequence() && survives(&disk, "a"));
    commit.wait().unwrap();
}

#[test]
fn weaker_durability_needs_no_sync() {
    let fs = held_syncs();
    let db = open(&fs, 2);
    let _hold = fs.0.hold();
    let in_memory = insert_async(&db, "a", Durability::Memory).unwrap();
    in_memory.wait().unwrap();
    let in_os = insert_async(&db, "b", Durability::OsBuffer).unwrap();
    let sequence = block_on(in_os).unwrap();
    assert!(db.durable_sequence() < sequence);
    let disk = &fs.0.disk;
    let left = Arc::new(disk.crash(disk.operations(), &Loss::Nothing));
    assert!(open(&left, 0).contains_key("b").unwrap(), "the operating system has it");
    drop(_hold);
}

#[test]
fn dropped_futures_do_not_cancel_their_writes() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk, 1);
    let commit = insert_async(&db, "a", Durability::Disk).unwrap();
    let sequence = commit.sequence();
    drop(commit);
    for _ in 0..60_000 {
        if db.durable_sequence() >= sequence {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(db.durable_sequence() >= sequence, "no thread syncs");
    assert!(survives(&disk, "a"));
}

#[test]
fn commits_without_writes_are_durable() {
    let db = open(&Arc::new(MemoryFs::new()), 0);
    assert_eq!(db.batch().commit_async(Durability::Disk).unwrap().wait().unwrap(), 0);
    assert_eq!(db.begin().commit_async(Durability::Disk).unwrap().wait().unwrap(), 0);
}

#[test]
fn transactions_commit_asynchronously() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk, 2);
    let mut transaction = db.begin();
    transaction.insert(&db, "a", "1").unwrap();
    let mut late = db.begin();
    assert!(!late.contains_key(&db, "a").unwrap());
    late.insert(&db, "b", "1").unwrap();
    let commit = transaction.commit_async(Durability::Disk).unwrap();
    let conflict = late.commit_async(Durability::Disk);
    assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
    commit.wait().unwrap();
    assert!(survives(&disk, "a") && !db.contains_key("b").unwrap());
}

#[test]
fn watermark_follows_every_sync_and_survives_a_reopen() {
    let disk = Arc::new(MemoryFs::new());
    let db = open(&disk, 0);
    let newest = |db: &Db| db.snapshot().sequence();
    db.insert("a", "1").unwrap();
    assert!(db.durable_sequence() < newest(&db));
    db.wait_durable(newest(&db)).unwrap();
    assert_eq!(db.durable_sequence(), newest(&db));
    db.insert("b", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(db.durable_sequence(), newest(&db));
    db.insert("c", "1").unwrap();
    let unknown = newest(&db) + 1;
    let refused = db.wait_durable(unknown);
    assert!(matches!(refused, Err(Error::NotWritten { .. })), "{refused:?}");
    let last = newest(&db);
    db.close().unwrap();
    let read_only = Options::new().fs(disk.clone()).read_only(true).open(STORE_DIR).unwrap();
    assert_eq!(read_only.durable_sequence(), 0);
    let refused = read_only.wait_durable(newest(&read_only));
    assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    read_only.wait_durable(0).unwrap();
    drop(read_only);
    let db = open(&disk, 0);
    assert_eq!(db.durable_sequence(), last);
    db.wait_durable(last).unwrap();
}
