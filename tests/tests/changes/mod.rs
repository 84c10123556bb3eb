//! The change stream.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;
mod failing;
#[cfg(feature = "stream")]
mod streams;
mod threads;

use std::{sync::Arc, time::Duration};

use sievedb::{
    ChangeBatch, ChangeRetention, Counter, Db, Durability, Error, HistoryLength, Options,
    changes::{ChangeKind, ChangesOptions, OldValue},
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

/// Options that keep all changes of a test.
fn keeping(fs: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(fs) as _).retain_changes(ChangeRetention::bytes(1 << 30))
}

fn open() -> (Arc<MemoryFs>, Db) {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let db = keeping(&fs).open(STORE_DIR).unwrap();
    (fs, db)
}

/// Returns the batches after `since` up to the end.
fn read(db: &Db, since: u64) -> Vec<ChangeBatch> {
    db.changes(since).unwrap().map(Result::unwrap).collect()
}

/// Returns the kinds of all changes.
fn kinds(batches: &[ChangeBatch]) -> Vec<&ChangeKind> {
    batches.iter().flat_map(|batch| batch.changes()).map(|change| &change.kind).collect()
}

#[test]
fn a_stream_resumes_behind_flushes_and_reopens() {
    let (fs, mut db) = open();
    let mut position = 0;
    let mut seen = Vec::new();
    for round in 0..30_u8 {
        let mut batch = db.batch();
        batch.insert(&db, [round], vec![round; 700]).unwrap();
        batch.remove(&db, [round.wrapping_sub(3)]).unwrap();
        batch.commit(Durability::Memory).unwrap();
        match round % 5 {
            1 => db.flush().unwrap(),
            2 => {
                drop(db);
                db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
            }
            3 => db.compact().unwrap(),
            _ => {}
        }
        if round % 2 == 0 {
            let mut changes = db.changes(position).unwrap();
            seen.extend(changes.by_ref().map(Result::unwrap));
            position = changes.position();
            assert!(changes.next().is_none() && !changes.is_ended());
        }
    }
    seen.extend(read(&db, position));
    let all = read(&db, 0);
    assert_eq!(seen, all);
    assert_eq!(all.len(), 31, "the creation of the keyspace, and the batches");
    assert!(all[1..].iter().all(|batch| batch.changes().len() == 2), "whole batches");
    let stats = db.stats();
    assert_eq!(stats.changes_kept_after, Some(0));
    assert!(stats.retained_log_bytes > 20 * 700, "{stats}");
    assert!(db.verify().unwrap().is_good());
    // A number within a batch is before its end.
    let (middle, last) = (all[5].first_sequence(), all[5].last_sequence());
    assert!(middle < last);
    assert_eq!(read(&db, middle), all[5..]);
    assert_eq!(read(&db, last), all[6..]);
}

#[test]
fn every_kind_of_change_is_in_the_stream() {
    let (_, db) = open();
    let since = db.snapshot().sequence();
    let counters = small_keyspace().merge_operator(Arc::new(Counter));
    let hits = db.keyspace_with("hits", &counters).unwrap();
    hits.merge("a", 7_u64.to_le_bytes()).unwrap();
    db.insert_with_ttl("session", "anna", Duration::from_secs(60)).unwrap();
    db.remove("session").unwrap();
    db.remove_range("a".."b").unwrap();
    db.remove_range("c"..).unwrap();
    let _ = db.insert_if_absent("key", "1").unwrap();
    // Refused: nothing is written.
    let _ = db.insert_if_absent("key", "2").unwrap();
    hits.clear().unwrap();
    db.rename_keyspace("hits", "old hits").unwrap();
    db.drop_keyspace("old hits").unwrap();
    let batches = read(&db, since);
    let names = batches.iter().flat_map(|batch| batch.changes());
    let names: Vec<_> = names.map(|change| change.keyspace_name().unwrap_or("unknown")).collect();
    let (key, operand) = ("a".into(), 7_u64.to_le_bytes().to_vec().into());
    let kinds = kinds(&batches);
    assert_eq!(*kinds[0], ChangeKind::CreateKeyspace { name: "hits".into() });
    assert_eq!(*kinds[1], ChangeKind::Merge { key, operand });
    let ChangeKind::Insert { key, value, expires_at: Some(_) } = kinds[2] else { panic!() };
    assert_eq!((&key[..], &value[..]), (&b"session"[..], &b"anna"[..]));
    assert_eq!(*kinds[3], ChangeKind::Remove { key: "session".into() });
    assert_eq!(*kinds[4], ChangeKind::RemoveRange { start: "a".into(), end: Some("b".into()) });
    assert_eq!(*kinds[5], ChangeKind::RemoveRange { start: "c".into(), end: None });
    let (key, value) = ("key".into(), "1".into());
    assert_eq!(*kinds[6], ChangeKind::Insert { key, value, expires_at: None });
    assert_eq!(*kinds[7], ChangeKind::Clear);
    assert_eq!(*kinds[8], ChangeKind::RenameKeyspace { name: "old hits".into() });
    assert_eq!(*kinds[9], ChangeKind::DropKeyspace);
    assert_eq!(kinds.len(), 10);
    // The keyspace was dropped before the stream began, which learns its name by its creation.
    let hits = ["hits", "hits", "default", "default", "default", "default", "default", "hits"];
    assert_eq!(names, [&hits[..], &["old hits", "old hits"]].concat());
}

#[test]
fn a_name_before_a_rename_is_not_guessed() {
    let (_, db) = open();
    let users = db.keyspace("users").unwrap();
    let since = db.snapshot().sequence();
    users.insert("key", "1").unwrap();
    db.rename_keyspace("users", "people").unwrap();
    users.insert("key", "2").unwrap();
    let batches = read(&db, since);
    let names = batches.iter().flat_map(|batch| batch.changes());
    let names: Vec<_> = names.map(|change| change.keyspace_name()).collect();
    assert_eq!(names, [None, Some("people"), Some("people")]);
}

#[test]
fn changes_are_kept_within_bytes_and_age() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let clock = Arc::new(ManualClock::new());
    let options = |retention| {
        let options = small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
        options.retain_changes(retention)
    };
    let minute = Duration::from_secs(60);
    let db = options(ChangeRetention::bytes(20 << 10).age_max(minute)).open(STORE_DIR).unwrap();
    for number in 0..60_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    db.flush().unwrap();
    let stats = db.stats();
    let kept = stats.changes_kept_after.unwrap();
    assert!(kept > 20 && kept < 61, "{stats}");
    assert!(stats.retained_log_bytes <= 20 << 10, "{stats}");
    match db.changes(kept - 1) {
        Err(Error::ChangesLost { since, oldest, newest }) => {
            assert_eq!((since, oldest, newest), (kept - 1, kept, 61));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&db, kept).len() as u64, 61 - kept);
    let future = db.changes(62);
    assert!(matches!(future, Err(Error::ChangesLost { newest: 61, .. })), "{future:?}");
    // A stream that falls behind.
    let mut slow = db.changes(kept).unwrap();
    slow.next().unwrap().unwrap();
    clock.advance(minute);
    db.insert("later", vec![1; 3000]).unwrap();
    db.flush().unwrap();
    assert!(db.stats().changes_kept_after.unwrap() >= 61, "{}", db.stats());
    let rest: Vec<_> = slow.by_ref().collect();
    assert!(matches!(rest.last(), Some(Err(Error::ChangesLost { .. }))), "{rest:?}");
    assert!(slow.is_ended());
    drop(db);

    let db = options(ChangeRetention::none()).open(STORE_DIR).unwrap();
    assert!(matches!(db.changes(61), Err(Error::ChangesNotRetained { .. })));
    let logs = fs.contents().into_iter().filter(|(path, _)| path.ends_with(".log")).count();
    assert!(logs as u64 <= db.stats().log_segments, "{logs} segments");
    db.insert("unseen", "1").unwrap();
    drop(db);
    let db = options(ChangeRetention::bytes(1)).open(STORE_DIR).unwrap();
    let begun = db.stats().changes_kept_after.unwrap();
    assert_eq!(begun, db.snapshot().sequence(), "older changes may be missing");
}

#[test]
fn a_read_only_store_has_its_changes() {
    let (fs, db) = open();
    for number in 0..20_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    let all = read(&db, 0);
    drop(db);
    let before = fs.contents();
    let db = small_options(Arc::clone(&fs) as _).read_only(true).open(STORE_DIR).unwrap();
    assert_eq!(read(&db, 0), all);
    drop(db);
    assert!(fs.contents() == before, "nothing was written");
}

#[test]
fn the_stream_of_a_checkpoint_begins_with_it() {
    let (fs, db) = open();
    for number in 0..20_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    db.flush().unwrap();
    db.insert("key", "1").unwrap();
    let sequence = db.checkpoint("data/copy").unwrap().sequence;
    drop(db);
    let copy = small_options(Arc::clone(&fs) as _).open("data/copy").unwrap();
    assert!(matches!(copy.changes(sequence - 1), Err(Error::ChangesLost { .. })));
    assert_eq!(read(&copy, sequence), []);
    copy.insert("key", "2").unwrap();
    assert_eq!(read(&copy, sequence).len(), 1);
    assert!(copy.verify().unwrap().is_good());
}

#[test]
fn old_values_are_those_before_the_batch() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let keyspace = small_keyspace().keep_history(HistoryLength::Sequences(1000));
    let db = keeping(&fs).keyspace(keyspace).open(STORE_DIR).unwrap();
    let other = db.keyspace_with("other", &small_keyspace()).unwrap();
    let since = db.snapshot().sequence();
    db.insert("key", "1").unwrap();
    let mut batch = db.batch();
    batch.insert(&db, "key", "2").unwrap();
    batch.remove(&db, "key").unwrap();
    batch.insert(&other, "key", "2").unwrap();
    batch.commit(Durability::OsBuffer).unwrap();
    db.compact().unwrap();
    db.insert("key", "3").unwrap();
    let options = ChangesOptions::new().old_values(true);
    let batches = db.changes_with(since, options).unwrap().map(Result::unwrap);
    let old: Vec<_> = batches.flatten().map(|change| change.old_value).collect();
    let one = || OldValue::Value("1".into());
    let want = [OldValue::Absent, one(), one(), OldValue::Unknown, OldValue::Absent];
    assert_eq!(old, want);
}

#[test]
fn changes_cost_nothing_until_they_are_kept() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
    assert!(matches!(db.changes(0), Err(Error::ChangesNotRetained { .. })));
    for number in 0..60_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    db.flush().unwrap();
    let logs = fs.contents().into_iter().filter(|(path, _)| path.ends_with(".log")).count();
    assert!(logs <= 2, "{logs} segments");
}

/// A flush after which the log begins with the same segment.
#[test]
fn old_changes_are_dropped_by_each_flush() {
    let clock = Arc::new(ManualClock::new());
    let options = small_options(Arc::new(MemoryFs::with_seed(1))).clock(Arc::clone(&clock) as _);
    let minute = Duration::from_secs(60);
    let retention = ChangeRetention::bytes(1 << 20).age_max(minute);
    let db = options.retain_changes(retention).open(STORE_DIR).unwrap();
    for number in 0..60_u8 {
        db.insert([number], vec![1; 1000]).unwrap();
    }
    db.flush().unwrap();
    assert!(db.stats().retained_log_bytes > 20 << 10, "{}", db.stats());
    clock.advance(minute);
    db.insert("later", "").unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().retained_log_bytes, 0, "{}", db.stats());
}
