//! `get_with` against `get`, and reads that do not fill the block cache.

use std::sync::Arc;

use sievedb::{Db, Keyspace, ReadOptions, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

const KEYS: u32 = 6_000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Creates values and tombstones in tables, a frozen memtable and a memtable.
fn filled() -> Db {
    let keyspace = small_keyspace().memtable_bytes(8 << 20).table_bytes(64 << 10);
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>)
        .log_segment_bytes(64 << 20)
        .log_bytes_max(256 << 20)
        .block_cache_bytes(64 << 20);
    let db = options.keyspace(keyspace).open(STORE_DIR).unwrap();
    for number in 0..KEYS {
        db.insert(key(number), [number as u8; 40]).unwrap();
    }
    db.compact().unwrap();
    for number in (0..KEYS).step_by(3) {
        db.remove(key(number)).unwrap();
    }
    db.flush().unwrap();
    for number in (0..KEYS).step_by(7) {
        db.insert(key(number), b"new").unwrap();
    }
    for number in (0..KEYS).step_by(11) {
        db.remove(key(number)).unwrap();
    }
    db
}

#[test]
fn get_with_equals_get() {
    let db = filled();
    let snapshot = db.snapshot();
    let mut called = 0;
    for number in 0..KEYS + 100 {
        let key = key(number);
        let mut take = |value: &[u8]| {
            called += 1;
            value.to_vec()
        };
        let want = db.get(key).unwrap().map(Vec::from);
        assert_eq!(db.get_with(key, &mut take).unwrap(), want, "{number}");
        assert_eq!(snapshot.get_with(key, &mut take).unwrap(), want, "{number}");
        called -= 2 * u32::from(want.is_some());
    }
    assert_eq!(called, 0, "only values that show are looked at");
}

#[test]
fn reads_without_cache_fill_leave_the_cache_unchanged() {
    let db = filled();
    let cached = || db.stats().memory.block_cache_bytes;
    let past = db.default_keyspace().with_read_options(ReadOptions::new().fill_cache(false));
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let wanted: Vec<_> = keys.iter().map(|key| db.snapshot().get(key).unwrap()).collect();
    let before = cached();
    type Read<'a> = (&'a str, &'a dyn Fn(&Keyspace));
    let reads: [Read<'_>; 5] = [
        ("get", &|reader| {
            let found: Vec<_> = keys.iter().map(|key| reader.get(key).unwrap()).collect();
            assert_eq!(found, wanted);
        }),
        ("get_with", &|reader| {
            let lens = keys.iter().map(|key| reader.get_with(key, <[u8]>::len).unwrap());
            assert!(lens.eq(wanted.iter().map(|value| value.as_ref().map(|value| value.len()))));
        }),
        ("get_many", &|reader| assert_eq!(reader.get_many(&keys).unwrap(), wanted)),
        ("iter", &|reader| assert_eq!(reader.iter().count(), wanted.iter().flatten().count())),
        ("snapshot", &|reader| {
            let snapshot = db.snapshot().keyspace(reader).unwrap();
            assert!(
                keys.iter().zip(&wanted).all(|(key, want)| snapshot.get(key).unwrap() == *want)
            );
        }),
    ];
    for (name, read) in reads {
        read(&past);
        assert_eq!(cached(), before, "{name}");
    }
    let empty = filled();
    let past = empty.default_keyspace().with_read_options(ReadOptions::new().fill_cache(false));
    for (name, read) in &reads[..4] {
        read(&past);
        assert_eq!(empty.stats().memory.block_cache_bytes, 0, "{name}");
    }
    // All handles of a store share the cache.
    reads[0].1(empty.default_keyspace());
    assert!(empty.stats().memory.block_cache_bytes > 0);
}
