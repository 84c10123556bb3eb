//! Properties of a cursor that the model test does not cover.

use std::sync::Arc;

use sievedb_format::{InternalKey, Kind, Trailer};
use sievedb_memtable::Memtable;

fn memtable(keys: impl IntoIterator<Item = Vec<u8>>) -> Arc<Memtable> {
    let memtable = Memtable::new(1 << 16);
    for (key, sequence) in keys.into_iter().zip(1..) {
        memtable.insert(0, &key, Trailer::new(sequence, Kind::Put), &[]);
    }
    Arc::new(memtable)
}

#[test]
fn a_cursor_keeps_its_memtable_alive() {
    let memtable = memtable((0..100_u8).map(|i| vec![i]));
    let weak = Arc::downgrade(&memtable);
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    for i in 0..100 {
        assert_eq!(cursor.key().map(|key| key.user_key), Some([i].as_slice()));
        cursor.next();
    }
    assert_eq!(cursor.key(), None);
    drop(cursor);
    assert_eq!(weak.strong_count(), 0);
}

/// Nodes with slabs of their own.
#[test]
fn long_keys_are_scanned() {
    let long = |i: u8| vec![i; 9 << 10];
    let mut cursor = memtable((0..40).map(long)).cursor();
    cursor.seek_to_first();
    for i in 0..40 {
        assert_eq!(cursor.key().map(|key| key.user_key), Some(long(i).as_slice()));
        cursor.next();
    }
    cursor.seek_to_last();
    for i in (0..40).rev() {
        assert_eq!(cursor.key().map(|key| key.user_key), Some(long(i).as_slice()));
        cursor.prev();
    }
    assert_eq!(cursor.key(), None);
}

#[test]
fn a_seek_finds_entries_inserted_after_the_cursor() {
    let memtable = memtable([b"a".to_vec(), b"c".to_vec()]);
    let mut cursor = Arc::clone(&memtable).cursor();
    cursor.seek_to_first();
    memtable.insert(0, b"b", Trailer::new(3, Kind::Put), &[]);
    memtable.insert(0, b"d", Trailer::new(4, Kind::Put), &[]);
    cursor.seek(InternalKey::seek(b"b", 9));
    for key in [b"b", b"c", b"d"] {
        assert_eq!(cursor.key().map(|key| key.user_key), Some(key.as_slice()));
        cursor.next();
    }
    assert_eq!(cursor.key(), None);
}

#[test]
#[should_panic(expected = "the cursor is positioned")]
fn next_on_an_unpositioned_cursor_panics() {
    memtable([]).cursor().next();
}

#[test]
fn cursors_are_send_and_sync() {
    fn is_send<T: Send + Sync>(_: &T) {}
    is_send(&memtable([]).cursor());
}
