//! Values in blob files: what is read, written and removed, and what damage costs.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod damage;
mod logged;
mod races;
mod shortages;
mod streams;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use sievedb::{
    Append, BackupSet, CompactionContext, CompactionFilter, Db, Decision, KeyspaceOptions, Options,
    clock::ManualClock, fs::Fs,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

pub(crate) type State = BTreeMap<u32, Vec<u8>>;

pub(crate) fn keyspace() -> KeyspaceOptions {
    small_keyspace().memtable_bytes(64 << 10).table_bytes(64 << 10).blob_value_bytes(1000)
}

pub(crate) fn options(disk: &Arc<MemoryFs>) -> Options {
    let options = small_options(Arc::clone(disk) as Arc<dyn Fs>).keyspace(keyspace());
    options.log_segment_bytes(1 << 20).log_bytes_max(4 << 20)
}

fn open(disk: &Arc<MemoryFs>) -> Db {
    options(disk).open(STORE_DIR).unwrap()
}

/// A value that LZ4 cannot shrink.
pub(crate) fn value(number: u32, round: u32, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(number) << 32 | u64::from(round) | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Inserts values of 2,000 bytes, and of 100 for each fifth key.
pub(crate) fn fill(db: &Db, keys: impl Iterator<Item = u32>, round: u32, state: &mut State) {
    for number in keys {
        let value = value(number, round, if number.is_multiple_of(5) { 100 } else { 2000 });
        db.insert(number.to_be_bytes(), &value).unwrap();
        state.insert(number, value);
    }
}

pub(crate) fn blob_files(disk: &MemoryFs, dir: &str) -> Vec<String> {
    let names = disk.list(Path::new(dir)).unwrap();
    names.into_iter().filter(|name| name.ends_with(".blob")).collect()
}

fn bytes_of(disk: &MemoryFs, suffix: &str) -> u64 {
    let is_of = |path: &str| path.starts_with(STORE_DIR) && path.ends_with(suffix);
    let contents = disk.contents();
    contents.iter().filter(|(path, _)| is_of(path)).map(|(_, bytes)| bytes.len() as u64).sum()
}

/// Compares every way to read with `state`.
pub(crate) fn check(db: &Db, state: &State) {
    let key = |number: u32| number.to_be_bytes();
    let last = state.keys().next_back().map_or(0, |last| last + 3);
    let numbers: Vec<_> = (0..last).collect();
    for &number in &numbers {
        let want = state.get(&number);
        assert_eq!(db.get(key(number)).unwrap().as_deref(), want.map(Vec::as_slice), "{number}");
        assert_eq!(db.contains_key(key(number)).unwrap(), want.is_some());
        let length = db.get_with(key(number), <[u8]>::len).unwrap();
        assert_eq!(length, want.map(Vec::len));
    }
    let many = db.get_many(numbers.iter().map(|&number| key(number))).unwrap();
    for (found, number) in many.iter().zip(&numbers) {
        assert_eq!(found.as_deref(), state.get(number).map(Vec::as_slice), "{number}");
    }
    let want: Vec<_> = state.iter().map(|(&number, value)| (number, value.clone())).collect();
    let entry = |entry: sievedb::Result<(bytes::Bytes, bytes::Bytes)>| {
        let (key, value) = entry.unwrap();
        (u32::from_be_bytes((*key).try_into().unwrap()), value.to_vec())
    };
    assert!(db.iter().map(entry).eq(want.iter().cloned()));
    assert!(db.iter().rev().map(entry).eq(want.iter().rev().cloned()));
    let keys = db.iter().keys().map(|key| u32::from_be_bytes((*key.unwrap()).try_into().unwrap()));
    assert!(keys.eq(want.iter().map(|(number, _)| *number)));
    // Ends that change direction.
    let mut range = db.iter();
    for (number, value) in want.iter().step_by(7) {
        range.seek_back(key(*number));
        assert_eq!(range.next_back_ref().unwrap().map(|it| it.value()), Some(&**value));
        range.seek(key(*number));
        assert_eq!(range.next_ref().unwrap().map(|it| it.value()), Some(&**value));
    }
}

#[test]
fn long_values_are_written_once_and_read_everywhere() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..200, 0, &mut state);
    let snapshot = db.snapshot();
    check(&db, &state);
    db.flush().unwrap();
    let written = bytes_of(&disk, ".blob");
    assert!((320_000..340_000).contains(&written), "{written} bytes");
    check(&db, &state);
    let old = state.clone();
    fill(&db, (0..200).step_by(10), 1, &mut state);
    (1..200_u32).step_by(10).for_each(|number| {
        db.remove(number.to_be_bytes()).unwrap();
        state.remove(&number);
    });
    db.compact().unwrap();
    check(&db, &state);
    assert!(bytes_of(&disk, ".sst") < 60_000, "tables have references only");
    for (number, value) in &old {
        assert_eq!(snapshot.get(number.to_be_bytes()).unwrap().as_deref(), Some(&**value));
    }
    assert!(db.verify().unwrap().is_good());
    drop(snapshot);
    drop(db);
    let db = open(&disk);
    check(&db, &state);
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn compactions_copy_references_and_lookups_read_once() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..200, 0, &mut state);
    db.flush().unwrap();
    let before = blob_files(&disk, STORE_DIR);
    db.insert(1000_u32.to_be_bytes(), "short").unwrap();
    db.compact().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), before, "no value was moved");
    let reads = || db.stats().table_reads;
    for number in [1_u32, 2, 3] {
        // The block of the second call is cached.
        db.get(number.to_be_bytes()).unwrap();
        let first = reads();
        assert!(db.contains_key(number.to_be_bytes()).unwrap());
        assert_eq!(reads().calls, first.calls);
        db.get(number.to_be_bytes()).unwrap();
        let (calls, bytes) = (reads().calls - first.calls, reads().bytes - first.bytes);
        assert!(calls == 1 && bytes < 2010, "{calls} reads of {bytes} bytes");
    }
    let first = reads();
    assert_eq!(db.iter().keys().count(), 201);
    assert!(reads().bytes - first.bytes < 20_000, "keys read no value");
}

#[test]
fn files_without_references_go_and_garbage_is_collected() {
    let disk = Arc::new(MemoryFs::new());
    let options = options(&disk).keyspace(keyspace().blob_garbage_ratio(0.2));
    let (db, mut state) = (options.open(STORE_DIR).unwrap(), State::new());
    fill(&db, 0..200, 0, &mut state);
    db.compact().unwrap();
    let first = blob_files(&disk, STORE_DIR);
    // Half of each file.
    fill(&db, (0..200).step_by(2), 1, &mut state);
    db.compact().unwrap();
    check(&db, &state);
    let live: usize = state.values().map(Vec::len).filter(|&bytes| bytes >= 1000).sum();
    let all = bytes_of(&disk, ".blob");
    assert!(all * 77 <= live as u64 * 100, "{all} bytes for {live}");
    let kept = blob_files(&disk, STORE_DIR);
    assert!(first.iter().any(|name| !kept.contains(name)), "no file was rewritten");
    assert!(db.verify().unwrap().is_good());
    (0..200_u32).for_each(|number| db.remove(number.to_be_bytes()).unwrap());
    db.compact().unwrap();
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
}

/// Overwrites each eighth value between compactions of everything.
#[test]
fn values_are_rewritten_when_too_many_files_alternate() {
    let depths = |depth_max: Option<u64>| {
        let disk = Arc::new(MemoryFs::new());
        let keyspace = keyspace().blob_garbage_ratio(1.0).blob_depth_max(depth_max);
        let open = || options(&disk).keyspace(keyspace.clone()).open(STORE_DIR).unwrap();
        let (mut db, mut state) = (open(), State::new());
        fill(&db, 0..160, 0, &mut state);
        let depth = |db: &Db| db.stats().keyspaces[0].blob_depth;
        let mut depths = Vec::new();
        for round in 0..6 {
            fill(&db, (round..160).step_by(8), round + 1, &mut state);
            db.compact().unwrap();
            depths.push(depth(&db));
            let files = db.stats().keyspaces[0].blob_files;
            assert!(depth(&db) <= files, "round {round}: {files} files");
        }
        check(&db, &state);
        assert!(db.verify().unwrap().is_good());
        drop(db);
        db = open();
        assert_eq!(Some(&depth(&db)), depths.last(), "stored in the manifest");
        check(&db, &state);
        depths
    };
    let free = depths(None);
    assert!(free.is_sorted() && free.last() > Some(&5), "{free:?}");
    let bounded = depths(Some(3));
    assert!(bounded.iter().all(|&depth| depth <= 3), "{bounded:?}");
    assert!(!bounded.is_sorted() && bounded.contains(&3), "no rewrite too early: {bounded:?}");
}

#[test]
fn readers_checkpoints_and_backups_keep_their_files() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..100, 0, &mut state);
    db.flush().unwrap();
    let set = BackupSet::with_fs(
        "data/set",
        Arc::clone(&disk) as Arc<dyn Fs>,
        Arc::new(ManualClock::new()),
    );
    set.create(&db).unwrap();
    db.checkpoint("data/copy").unwrap();
    let mut range = db.iter();
    range.next_ref().unwrap();
    let mut newer = State::new();
    fill(&db, 0..100, 1, &mut newer);
    db.compact().unwrap();
    let rest: Vec<_> = range.by_ref().map(|entry| entry.unwrap().1.to_vec()).collect();
    assert_eq!(rest, state.values().skip(1).cloned().collect::<Vec<_>>(), "the iterator's view");
    drop(range);
    db.flush().unwrap();
    check(&db, &newer);
    let copy = options(&disk).open("data/copy").unwrap();
    check(&copy, &state);
    assert!(copy.verify().unwrap().is_good());
    set.restore(1, "data/restored").unwrap();
    let restored = options(&disk).open("data/restored").unwrap();
    check(&restored, &state);
    assert!(restored.verify().unwrap().is_good());
    assert!(set.verify().unwrap().problems.is_empty());
}

/// Replaces values that begin with an odd byte, and removes some.
#[derive(Debug)]
struct ByValue;

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "by value"
    }

    fn filter(&self, _: &CompactionContext<'_>, _: &[u8], value: &[u8]) -> Decision {
        match value[0] % 3 {
            0 => Decision::Keep,
            1 => Decision::Replace(vec![0; value.len() + 1]),
            _ => Decision::Remove,
        }
    }
}

#[test]
fn compaction_filters_and_merge_operators_get_values() {
    let disk = Arc::new(MemoryFs::new());
    let append = keyspace().merge_operator(Arc::new(Append::with_separator(",")));
    let (db, mut state) = (options(&disk).open(STORE_DIR).unwrap(), State::new());
    let lists = db.keyspace_with("lists", &append).unwrap();
    let long = value(7, 7, 3000);
    lists.insert("list", &long).unwrap();
    lists.flush().unwrap();
    lists.merge("list", "more").unwrap();
    let want = [&long[..], b",more"].concat();
    let is_right = || {
        assert_eq!(lists.get("list").unwrap().as_deref(), Some(&*want));
        assert_eq!(lists.iter().next().unwrap().unwrap().1, want);
        assert_eq!(lists.iter().next_back().unwrap().unwrap().1, want);
    };
    is_right();
    lists.flush().unwrap();
    is_right();
    lists.compact().unwrap();
    is_right();
    fill(&db, 0..100, 0, &mut state);
    db.flush().unwrap();
    let filtered = keyspace().compaction_filter(Arc::new(ByValue));
    let options = options(&disk).compaction_filter(Arc::new(ByValue)).keyspace(filtered);
    drop((lists, db));
    let db = options.open(STORE_DIR).unwrap();
    db.compact().unwrap();
    state.retain(|_, value| value[0] % 3 != 2);
    for value in state.values_mut().filter(|value| value[0] % 3 == 1) {
        *value = vec![0; value.len() + 1];
    }
    check(&db, &state);
}

#[test]
fn options_change_and_short_values_return_to_tables() {
    let disk = Arc::new(MemoryFs::new());
    let (db, mut state) = (open(&disk), State::new());
    fill(&db, 0..100, 0, &mut state);
    db.flush().unwrap();
    drop(db);
    let without = keyspace().blob_value_bytes(None).blob_garbage_ratio(0.05);
    let db = options(&disk).keyspace(without).open(STORE_DIR).unwrap();
    check(&db, &state);
    fill(&db, (0..100).step_by(3), 1, &mut state);
    db.compact().unwrap();
    check(&db, &state);
    assert_eq!(blob_files(&disk, STORE_DIR), Vec::<String>::new());
    drop(db);
    let db = open(&disk);
    fill(&db, 0..1, 2, &mut state);
    db.compact().unwrap();
    check(&db, &state);
    let invalid = [
        keyspace().blob_value_bytes(63),
        keyspace().blob_garbage_ratio(0.01),
        keyspace().blob_depth_max(0),
    ];
    for options in invalid {
        assert!(db.keyspace_with("other", &options).is_err());
    }
}
