//! FIFO: what is deleted, when, and who still sees it.

use std::{sync::Arc, time::Duration};

use sievedb::{
    Append, CompactionStyle, Db, Error, Fifo, Isolation, SizeTiered, TransactionOptions,
    clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use super::{contents, flush_round, open, runs_by_level, set_style};

/// Writes a flush of keys `first` to `first + 19`.
fn flush(db: &Db, first: usize) {
    (first..first + 20).for_each(|number| db.insert(format!("{number:05}"), [7; 90]).unwrap());
    db.flush().unwrap();
}

fn first_key(db: &Db) -> usize {
    let key = db.iter().keys().next().expect("an entry").unwrap();
    std::str::from_utf8(&key).unwrap().parse().unwrap()
}

#[test]
fn fifo_keeps_the_newest_flushes_within_its_bytes() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Fifo::new(8 << 10));
    for round in 0..100 {
        flush(&db, round * 20);
        let keyspace = &db.stats().keyspaces[0];
        assert!(keyspace.table_bytes <= 8 << 10, "{} bytes", keyspace.table_bytes);
    }
    let left = db.iter().count();
    assert!((40..1000).contains(&left), "{left} entries");
    assert_eq!(first_key(&db), 2000 - left, "the oldest are gone");
    assert_eq!(left % 20, 0, "whole flushes");
    let background = db.stats().background;
    assert_eq!(background.compaction_bytes_read + background.compaction_bytes_written, 0);
    assert_eq!(background.tables_unlinked_unread as usize, (2000 - left) / 20);
    // The space is free, too.
    let bytes: usize = fs.contents().values().map(bytes::Bytes::len).sum();
    assert!(bytes < 64 << 10, "{bytes} bytes in files");
    db.compact().unwrap();
    assert_eq!(db.iter().count(), left, "nothing is merged");
    assert!(runs_by_level(&db)[&0] > 1);
    db.verify().unwrap();
}

/// Writers would wait at 32 runs if merges could make them fewer.
#[test]
fn writes_do_not_wait_for_merges_that_fifo_never_does() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Fifo::new(1 << 30));
    (0..60).for_each(|round| flush(&db, round * 20));
    drop(db);
    let db = open(&fs, Fifo::new(1 << 30));
    (60..70).for_each(|round| flush(&db, round * 20));
    assert_eq!(runs_by_level(&db)[&0], 70);
    assert_eq!(db.iter().count(), 1400);
}

#[test]
fn fifo_deletes_by_age_also_after_an_opening() {
    let (fs, clock) = (Arc::new(MemoryFs::new()), Arc::new(ManualClock::new()));
    let fifo = Fifo::new(1 << 30).age_max(Duration::from_secs(60));
    let open = || {
        let keyspace = small_keyspace().compaction_style(fifo);
        let options = small_options(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
        options.keyspace(keyspace).open(STORE_DIR).unwrap()
    };
    let wait = |seconds| clock.advance(Duration::from_secs(seconds));
    let db = open();
    for round in 0..3 {
        flush(&db, round * 20);
        wait(10);
    }
    wait(29);
    db.wait_for_background().unwrap();
    assert_eq!(first_key(&db), 0, "59 s");
    wait(1);
    db.wait_for_background().unwrap();
    assert_eq!(first_key(&db), 20, "60 s");
    db.close().unwrap();
    wait(10);
    let db = open();
    db.wait_for_background().unwrap();
    assert_eq!(first_key(&db), 40, "times are stored");
    // A merge has the time of its newest input.
    set_style(&db, SizeTiered::new().merge_runs_min(2)).unwrap();
    flush(&db, 60);
    db.compact().unwrap();
    set_style(&db, fifo).unwrap();
    wait(59);
    db.wait_for_background().unwrap();
    assert_eq!(first_key(&db), 40);
    wait(1);
    db.wait_for_background().unwrap();
    assert!(db.is_empty().unwrap(), "the newest are too old");
    db.insert("later", "value").unwrap();
    assert_eq!(db.get("later").unwrap(), Some("value".into()));
}

#[test]
fn snapshots_and_iterators_keep_what_fifo_deletes() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Fifo::new(8 << 10));
    flush(&db, 0);
    let snapshot = db.snapshot();
    let mut held = db.iter();
    let mut tx = db.begin();
    (1..20).for_each(|round| flush(&db, round * 20));
    assert_eq!(db.get("00003").unwrap(), None);
    assert_eq!(snapshot.get("00003").unwrap(), Some(vec![7; 90].into()));
    assert_eq!(snapshot.iter().count(), 20);
    assert_eq!(held.next().unwrap().unwrap().0, "00000");
    assert_eq!(held.count(), 19);
    // A deletion is no write.
    assert!(tx.get(&db, "00004").unwrap().is_some());
    tx.insert(&db, "00005", "new").unwrap();
    tx.commit(sievedb::Durability::OsBuffer).unwrap();
    let files = fs.contents().len();
    drop(snapshot);
    flush(&db, 400);
    assert!(fs.contents().len() < files + 1, "files of the snapshot are unlinked");
}

/// The removed table had the only version that shows the conflict.
#[test]
fn a_removed_write_is_a_conflict_still() {
    let db = open(&Arc::new(MemoryFs::new()), Fifo::new(8 << 10));
    flush(&db, 0);
    let options = TransactionOptions::new().isolation(Isolation::Serializable);
    let (of_key, of_range) = (db.begin(), db.begin_with(options));
    assert!(of_key.get_for_update(&db, "00007").unwrap().is_some());
    assert_eq!(of_range.range(&db, "00005".."00009").count(), 4);
    db.insert("00007", "new").unwrap();
    (1..20).for_each(|round| flush(&db, round * 20));
    assert_eq!(db.get("00007").unwrap(), None, "removed");
    for mut tx in [of_key, of_range] {
        tx.insert(&db, "other", "value").unwrap();
        let committed = tx.commit(sievedb::Durability::OsBuffer);
        assert!(matches!(committed, Err(Error::Conflict { .. })), "{committed:?}");
    }
    // Later ones do not depend on it.
    let mut tx = db.begin();
    assert!(tx.get_for_update(&db, "00007").unwrap().is_none());
    tx.insert(&db, "00007", "value").unwrap();
    tx.commit(sievedb::Durability::OsBuffer).unwrap();
}

/// Overwrites and removals are newer than what they hide, so they go later.
#[test]
fn nothing_reappears() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, Fifo::new(12 << 10));
    let mut model = Default::default();
    for round in 0..200 {
        flush_round(&db, round, &mut model);
        for (key, value) in contents(&db) {
            assert_eq!(model.get(&key), Some(&value), "{key}");
        }
    }
    assert!(db.stats().background.tables_unlinked_unread > 50);
}

#[test]
fn values_in_blob_files_count_and_go_with_their_tables() {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = small_keyspace().memtable_bytes(64 << 10).table_bytes(64 << 10);
    let keyspace = keyspace.blob_value_bytes(100).compaction_style(Fifo::new(40 << 10));
    let db = small_options(Arc::clone(&fs) as _).keyspace(keyspace).open(STORE_DIR).unwrap();
    for round in 0..30_u8 {
        // Random bytes: LZ4 leaves them as they are.
        let noise = |at: u64| (sievedb_tests::rng::mix(at + 4096 * u64::from(round)) >> 7) as u8;
        let value: Vec<u8> = (0..3000).map(noise).collect();
        (0..3).for_each(|at| db.insert([round, at], &value).unwrap());
        db.flush().unwrap();
    }
    let left = db.iter().count();
    assert!((6..=15).contains(&left), "{left} values of 3 KB in 40 KiB");
    let is_blob = |name: &&Arc<str>| name.ends_with(".blob");
    let files = fs.contents().keys().filter(is_blob).count();
    assert_eq!(files, left / 3, "a blob file for each flush");
}

#[test]
fn merge_operands_go_like_values() {
    let fs = Arc::new(MemoryFs::new());
    let keyspace = small_keyspace().merge_operator(Arc::new(Append::new()));
    let keyspace = keyspace.compaction_style(Fifo::new(4 << 10));
    let db = small_options(Arc::clone(&fs) as _).keyspace(keyspace).open(STORE_DIR).unwrap();
    for round in 0..9 {
        db.default_keyspace().merge("key", round.to_string()).unwrap();
        flush(&db, round * 20);
    }
    let left = db.get("key").unwrap().expect("operands");
    assert!(left.len() < 9 && b"012345678".ends_with(&left), "{left:?}");
}

#[test]
fn a_leveled_keyspace_that_becomes_fifo_loses_its_deepest_tables_first() {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs, CompactionStyle::Leveled);
    (0..20).for_each(|round| flush(&db, round * 20));
    db.compact().unwrap();
    flush(&db, 400);
    let tables = db.stats().keyspaces[0].tables;
    set_style(&db, Fifo::new(8 << 10)).unwrap();
    let keyspace = &db.stats().keyspaces[0];
    assert!(keyspace.table_bytes <= 8 << 10 && keyspace.tables < tables, "at once");
    assert_eq!(db.iter().rev().take(20).count(), 20);
    assert!(db.contains_key("00419").unwrap(), "the newest is there");
    let deepest = *runs_by_level(&db).keys().next_back().unwrap();
    assert!(deepest > 0, "table by table below level 0");
}
