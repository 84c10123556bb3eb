//! Estimates of keys and bytes.

use std::sync::Arc;

use sievedb::{Db, Error, KeyspaceOptions, Options};
use sievedb_doubles::MemoryFs;

/// Opens a store whose tables have many blocks.
fn open() -> Db {
    let keyspace = KeyspaceOptions::new().table_bytes(256 << 10).block_bytes(1 << 10);
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    options.keyspace(keyspace).open("db").expect("a new store")
}

fn fill(db: &Db, keys: u32) {
    for number in 0..keys {
        // Incompressible.
        let value: Vec<u8> = (0..25_u32)
            .flat_map(|word| (number ^ word << 20).wrapping_mul(0x9e37_79b9).to_le_bytes())
            .collect();
        db.insert(number.to_be_bytes(), value).expect("there is room");
    }
}

#[test]
fn the_length_is_exact_for_keys_that_are_written_once() {
    let db = open();
    let default = db.default_keyspace();
    let len = || default.approximate_len().unwrap();
    assert_eq!(len(), 0);
    fill(&db, 1000);
    assert_eq!(len(), 1000);
    db.flush().unwrap();
    assert_eq!(len(), 1000);
    for number in 0..300_u32 {
        db.remove(number.to_be_bytes()).unwrap();
    }
    assert_eq!(len(), 700, "tombstones in a memtable");
    db.flush().unwrap();
    assert_eq!(len(), 700, "tombstones in a table");
    db.compact().unwrap();
    assert_eq!((len(), db.len().unwrap()), (700, 700));
    db.insert(500_u32.to_be_bytes(), "again").unwrap();
    assert_eq!(len(), 701, "a second version");
    db.remove_prefix([0, 0, 3]).unwrap();
    assert_eq!(len(), 701, "a range tombstone in a memtable");
    db.flush().unwrap();
    assert_eq!(len(), 701, "a range tombstone in a table");
    default.clear().unwrap();
    assert_eq!(len(), 0);
}

#[test]
fn bytes_of_parts_add_up_to_those_of_the_whole() {
    const KEYS: u32 = 20_000;
    let db = open();
    let default = db.default_keyspace();
    fill(&db, KEYS);
    for state in ["in a memtable", "in tables", "in a sorted run"] {
        match state {
            "in tables" => db.flush().unwrap(),
            "in a sorted run" => db.compact().unwrap(),
            _ => {}
        }
        let all = default.approximate_bytes::<&[u8]>(..).unwrap();
        assert!(all > u64::from(KEYS) * 100, "{state}: {all}");
        let mut sum = 0;
        for part in 0..10 {
            let (low, high) = (part * KEYS / 10, (part + 1) * KEYS / 10);
            let bytes = default.approximate_bytes(low.to_be_bytes()..high.to_be_bytes()).unwrap();
            let percent = 100 * bytes / all;
            assert!((7..=13).contains(&percent), "{state}: part {part} has {percent} %");
            sum += bytes;
        }
        assert!(sum.abs_diff(all) <= all / 20, "{state}: {sum} and {all}");
        let none = [
            default.approximate_bytes(KEYS.to_be_bytes()..).unwrap(),
            default.approximate_bytes(9_u32.to_be_bytes()..9_u32.to_be_bytes()).unwrap(),
            default.approximate_bytes(9_u32.to_be_bytes()..8_u32.to_be_bytes()).unwrap(),
        ];
        assert_eq!(none, [0; 3], "{state}");
    }
}

#[test]
fn range_delete_without_an_end_does_not_enlarge_other_ranges() {
    let db = open();
    // Without a key to hide, the flush would drop the range delete.
    db.insert(9_500_u32.to_be_bytes(), b"old").unwrap();
    db.flush().unwrap();
    db.remove_range(9_000_u32.to_be_bytes()..).unwrap();
    fill(&db, 1_000);
    db.flush().unwrap();
    assert_eq!(db.stats().keyspaces[0].range_tombstones, 1);
    let all = db.approximate_bytes::<&[u8]>(..).unwrap();
    let (low, high) = (100_u32.to_be_bytes(), 200_u32.to_be_bytes());
    let tenth = db.approximate_bytes(low..high).unwrap();
    assert!((all / 20..=all / 5).contains(&tenth), "{tenth} of {all}");
    let first = db.approximate_bytes(..high).unwrap();
    assert!((all / 10..=all / 3).contains(&first), "{first} of {all}");
}

#[test]
fn a_dropped_keyspace_has_no_size() {
    let db = open();
    let gone = db.keyspace("gone").unwrap();
    db.drop_keyspace("gone").unwrap();
    let len = gone.approximate_len().unwrap_err();
    let bytes = gone.approximate_bytes::<&[u8]>(..).unwrap_err();
    for error in [len, bytes] {
        assert!(matches!(error, Error::KeyspaceDropped { .. }), "{error:?}");
    }
}
