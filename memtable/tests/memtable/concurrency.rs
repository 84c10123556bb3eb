//! Concurrent inserts and reads.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, Kind, Trailer};
use sievedb_memtable::Memtable;

const ENTRIES: u64 = 4_000;

/// Returns the user key of the write with this sequence number: 500 keys with 8 versions each.
fn user_key(sequence: u64) -> [u8; 8] {
    (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).rem_euclid(500).to_be_bytes()
}

/// Returns the entries visible to a reader at `snapshot`, in order.
fn expected(snapshot: u64) -> Vec<([u8; 8], u64)> {
    let mut entries: Vec<_> = (1..=snapshot).map(|s| (user_key(s), s)).collect();
    entries.sort_by_key(|&(key, sequence)| (key, u64::MAX - sequence));
    entries
}

/// Three writers publish in sequence order, as commits do. Two readers take the published sequence
/// number as their snapshot and must find exactly its entries: by lookups, forward and backward.
#[test]
fn a_reader_finds_all_published_entries() {
    let memtable = Arc::new(Memtable::new(64 << 10));
    let (next, published) = (AtomicU64::new(1), AtomicU64::new(0));
    let write = || {
        loop {
            let sequence = next.fetch_add(1, Ordering::Relaxed);
            if sequence > ENTRIES {
                return;
            }
            let key = user_key(sequence);
            let value = sequence.to_le_bytes();
            let trailer = Trailer::new(sequence, Kind::Put);
            memtable.insert(key_hash(&key, 0), &key, trailer, &value);
            let publish = || {
                let (old, new) = (sequence - 1, sequence);
                published.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            };
            while publish().is_err() {
                thread::yield_now();
            }
        }
    };
    let read = |backward: bool| {
        loop {
            let snapshot = published.load(Ordering::Acquire);
            for sequence in snapshot.saturating_sub(100) + 1..=snapshot {
                let key = user_key(sequence);
                assert!(memtable.may_contain_hash(key_hash(&key, 0)), "entry {sequence}");
                let (trailer, value) =
                    memtable.get(&key, sequence).expect("the entry was published");
                assert_eq!(trailer.sequence(), sequence);
                assert_eq!(*value, sequence.to_le_bytes());
            }
            let mut found = Vec::new();
            let mut cursor = Arc::clone(&memtable).cursor();
            if backward {
                cursor.seek_to_last();
            } else {
                cursor.seek_to_first();
            }
            while let Some(key) = cursor.key() {
                let sequence = key.trailer.sequence();
                if sequence <= snapshot {
                    found.push((key.user_key.try_into().expect("8 bytes"), sequence));
                }
                if backward {
                    cursor.prev();
                } else {
                    cursor.next();
                }
            }
            if backward {
                found.reverse();
            }
            assert!(found == expected(snapshot), "snapshot {snapshot}: the scan differs");
            if snapshot == ENTRIES {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(write);
        }
        scope.spawn(|| read(false));
        scope.spawn(|| read(true));
    });
    assert_eq!(memtable.entries() as u64, ENTRIES);
}

/// Four writers insert adjacent keys, so that they compete for the same links. Each entry must be
/// visited once, in order.
#[test]
fn concurrent_inserts_of_adjacent_keys() {
    const EACH: u64 = 5_000;
    let memtable = Arc::new(Memtable::new(64 << 10));
    let trailer = |writer, number| Trailer::new(4 * number + writer, Kind::Put);
    let (memtable_ref, barrier) = (&memtable, &Barrier::new(4));
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            scope.spawn(move || {
                barrier.wait();
                for number in 0..EACH {
                    let value = writer.to_le_bytes();
                    memtable_ref.insert(0, &number.to_be_bytes(), trailer(writer, number), &value);
                }
            });
        }
    });
    let mut cursor = Arc::clone(&memtable).cursor();
    cursor.seek_to_first();
    for number in 0..EACH {
        // Newest version first.
        for writer in (0..4_u64).rev() {
            let (key, trailer) = (number.to_be_bytes(), trailer(writer, number));
            assert_eq!(cursor.key(), Some(InternalKey::new(&key, trailer)));
            assert_eq!(cursor.value_ref(), writer.to_le_bytes());
            assert_eq!(memtable.get(&key, trailer.sequence()).map(|found| found.0), Some(trailer));
            cursor.next();
        }
    }
    assert_eq!(cursor.key(), None);
}

#[test]
fn reservations_add_up() {
    let memtable = Memtable::new(0);
    let before = memtable.memory_bytes();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    memtable.reserve(Memtable::charge(8, 100));
                }
            });
        }
    });
    assert_eq!(memtable.memory_bytes() - before, 4000 * Memtable::charge(8, 100));
}
