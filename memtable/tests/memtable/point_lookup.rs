//! The version that a point lookup finds.

use bytes::Bytes;
use sievedb_filter::key_hash;
use sievedb_format::{KEY_BYTES_MAX, Kind, SEQUENCE_MAX, Trailer};
use sievedb_memtable::Memtable;

fn insert(memtable: &Memtable, user_key: &[u8], sequence: u64, kind: Kind) {
    let value = format!("value {sequence}");
    memtable.insert(
        key_hash(user_key, 0),
        user_key,
        Trailer::new(sequence, kind),
        value.as_bytes(),
    );
}

/// Sequence number and kind of the expected version.
type Found = Option<(u64, Kind)>;

#[test]
fn a_lookup_finds_the_newest_visible_version() {
    let memtable = Memtable::new(1 << 16);
    insert(&memtable, b"key", 5, Kind::Put);
    insert(&memtable, b"key", 9, Kind::Tombstone);
    insert(&memtable, b"key", SEQUENCE_MAX, Kind::Put);
    insert(&memtable, b"key\0", 7, Kind::Put);
    insert(&memtable, b"", 6, Kind::Put);
    let cases: [(&str, &[u8], u64, Found); 10] = [
        ("older than the first version", b"key", 4, None),
        ("at the first version", b"key", 5, Some((5, Kind::Put))),
        ("between two versions", b"key", 8, Some((5, Kind::Put))),
        ("a tombstone is a version", b"key", 9, Some((9, Kind::Tombstone))),
        ("the last sequence number", b"key", SEQUENCE_MAX, Some((SEQUENCE_MAX, Kind::Put))),
        ("a longer key is a different key", b"key\0", 9, Some((7, Kind::Put))),
        ("a version of the adjacent key", b"key\0", 6, None),
        ("a prefix is a different key", b"ke", 9, None),
        ("the empty key is a key", b"", 6, Some((6, Kind::Put))),
        ("after all keys", b"z", 9, None),
    ];
    for (name, user_key, sequence, want) in cases {
        let found = memtable.get(user_key, sequence);
        let want = want.map(|(sequence, kind)| {
            (Trailer::new(sequence, kind), Bytes::from(format!("value {sequence}")))
        });
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn a_filter_of_one_line_has_no_false_negatives() {
    let memtable = Memtable::new(0);
    let keys: Vec<Vec<u8>> = vec![vec![], vec![0; KEY_BYTES_MAX], vec![0xff; KEY_BYTES_MAX]];
    for (key, sequence) in keys.iter().zip(1..) {
        assert!(memtable.get(key, SEQUENCE_MAX).is_none());
        insert(&memtable, key, sequence, Kind::Put);
    }
    for (key, sequence) in keys.iter().zip(1..) {
        assert!(memtable.may_contain_hash(key_hash(key, 0)));
        let found = memtable.get(key, SEQUENCE_MAX).map(|(trailer, _)| trailer);
        assert_eq!(found, Some(Trailer::new(sequence, Kind::Put)));
    }
}

#[test]
fn an_empty_memtable_rejects_every_key() {
    let memtable = Memtable::new(1 << 20);
    assert!(memtable.is_empty());
    assert!(memtable.range_tombstones().is_empty());
    assert_eq!(memtable.range_tombstones().newest_cover(b"key", SEQUENCE_MAX), None);
    assert!((0..1000_u64).all(|i| !memtable.may_contain_hash(key_hash(&i.to_le_bytes(), 0))));
}
