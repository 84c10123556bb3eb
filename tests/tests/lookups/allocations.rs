//! A miss does not allocate, and `get_many` allocates a fixed number of buffers.

use std::sync::Arc;

use sievedb::{Db, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, small_keyspace, small_options},
};

use crate::corruption::allocation::{count_in, reset_largest};

const KEYS: u32 = 20_000;

/// Creates three runs of even numbers and a memtable with the last ones.
fn three_runs() -> Db {
    let keyspace = small_keyspace().memtable_bytes(8 << 20).table_bytes(64 << 10);
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>)
        .log_segment_bytes(64 << 20)
        .log_bytes_max(256 << 20)
        .block_cache_bytes(64 << 20);
    let db = options.keyspace(keyspace).open(STORE_DIR).unwrap();
    let insert = |keys: std::ops::Range<u32>| {
        for number in keys.filter(|number| number % 2 == 0) {
            db.insert(number.to_be_bytes(), [1; 20]).unwrap();
        }
    };
    insert(0..KEYS);
    db.compact().unwrap();
    insert(0..KEYS / 10);
    db.flush().unwrap();
    insert(KEYS / 2..KEYS);
    db.flush().unwrap();
    insert(KEYS - 100..KEYS);
    assert_eq!(db.stats().keyspaces[0].runs, 3);
    // Caches all blocks, and creates this thread's counters.
    for number in 0..KEYS {
        db.get(number.to_be_bytes()).unwrap();
    }
    db
}

#[test]
fn miss_does_not_allocate() {
    reset_largest();
    let db = three_runs();
    let absent = || (1..KEYS).step_by(2).map(u32::to_be_bytes);
    type Call<'a> = &'a dyn Fn([u8; 4]) -> bool;
    let calls: [(&str, Call<'_>); 3] = [
        ("get", &|key| db.get(key).unwrap().is_some()),
        ("contains_key", &|key| db.contains_key(key).unwrap()),
        ("may_contain", &|key| {
            // `true` for a false positive.
            let _ = db.may_contain(key);
            false
        }),
    ];
    for (name, call) in calls {
        let (found, allocations) = count_in(|| absent().filter(|key| call(*key)).count());
        assert_eq!((found, allocations), (0, 0), "{name}");
    }
    let present = || (0..KEYS).step_by(2).map(u32::to_be_bytes);
    let (found, allocations) =
        count_in(|| present().filter(|key| db.contains_key(key).unwrap()).count());
    assert_eq!((found, allocations), (KEYS as usize / 2, 0), "contains_key of a present key");
}

/// A value in a blob file is returned as it was read, without a copy.
#[test]
fn value_of_a_blob_file_is_not_copied() {
    let keyspace = small_keyspace().memtable_bytes(8 << 20).blob_value_bytes(1000);
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>)
        .log_segment_bytes(64 << 20)
        .log_bytes_max(256 << 20)
        .keyspace(keyspace);
    let db = options.open(STORE_DIR).unwrap();
    let mut value = Vec::new();
    Rng::new(1).fill(&mut value, 1 << 20);
    db.insert("key", &value).unwrap();
    db.flush().unwrap();
    assert_eq!(db.stats().keyspaces[0].blob_files, 1);
    // Caches the block, and creates this thread's counters.
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&*value));
    let (length, lent) = count_in(|| db.get_with("key", <[u8]>::len).unwrap());
    let (found, allocations) = count_in(|| db.get("key").unwrap());
    assert_eq!((found.map(|it| it.len()), length), (Some(1 << 20), Some(1 << 20)));
    assert_eq!(allocations, lent, "as many as for a borrowed value");
}

#[test]
fn get_many_allocations_do_not_grow_with_keys() {
    let db = three_runs();
    let allocations = |keys: std::ops::Range<u32>| {
        let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
        count_in(|| db.contains_many(&keys).unwrap().len()).1
    };
    let few = allocations(0..600);
    let many = allocations(0..KEYS);
    // Buffers of the first chunk may grow in a later one.
    assert!(many <= few + 12, "{few} allocations for 600 keys, {many} for {KEYS}");
    assert!(few <= 24, "{few} allocations for 600 keys");
}
