//! Range tombstones of a memtable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use sievedb_format::{RangeTombstone, packed_keys::head};
use sievedb_memtable::{Memtable, MemtableRanges};

fn range(sequence: u64) -> RangeTombstone {
    let start = (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
    let end = start.saturating_add(1 + (sequence % 500) as u16);
    let end = end.to_be_bytes();
    let end = if sequence.is_multiple_of(97) { &[][..] } else { &end };
    RangeTombstone::new(&start.to_be_bytes(), end, sequence)
}

#[test]
fn newest_cover_agrees_with_a_scan_of_all() {
    let ranges = MemtableRanges::default();
    let mut all = Vec::new();
    for sequence in 1..=700 {
        all.push(range(sequence));
        ranges.insert(range(sequence));
        assert_eq!(ranges.len(), all.len());
        if sequence > 12 && sequence % 50 != 0 {
            continue;
        }
        for key in (0..u16::MAX).step_by(997).map(u16::to_be_bytes) {
            for at in [0, sequence / 3, sequence - 1, u64::MAX] {
                let seen = all.iter().filter(|it| it.sequence <= at && it.covers(&key));
                let want = seen.map(|it| it.sequence).max();
                assert_eq!(ranges.newest_cover(&key, at), want, "{key:?} at {at}");
                let wide = ranges.wide_cover(head(&key), at);
                let is_seen = |it: &RangeTombstone| it.sequence <= at && it.covers(&key);
                assert!(wide == 0 || all.iter().any(|it| it.sequence == wide && is_seen(it)));
                for above in [0, sequence / 2, sequence] {
                    let newest = ranges.newest_cover_above(&key, at, above);
                    assert_eq!(newest, want.unwrap_or(0).max(above), "{key:?} above {above}");
                }
            }
        }
    }
    let lists = ranges.lists();
    assert!(lists.len() <= 3, "{} lists", lists.len());
    assert_eq!(lists.iter().map(|list| list.len()).sum::<usize>(), all.len());
}

#[test]
fn the_widest_of_the_first_range_tombstones_is_compared() {
    let ranges = MemtableRanges::default();
    assert_eq!(ranges.wide_cover(head(b"m"), 100), 0);
    for (start, end, sequence) in [("b", "c", 1), ("d", "", 2), ("e", "f", 3)] {
        ranges.insert(RangeTombstone::new(start.as_bytes(), end.as_bytes(), sequence));
    }
    for (key, at, want) in [("m", 100, 2), ("m", 1, 0), ("bb", 100, 0), ("d", 100, 0), ("e", 2, 2)]
    {
        assert_eq!(ranges.wide_cover(head(key.as_bytes()), at), want, "{key} at {at}");
    }
}

#[test]
fn a_memtable_with_a_range_tombstone_only_is_not_empty() {
    let memtable = Memtable::new(1 << 10);
    memtable.insert_range_tombstone(RangeTombstone::new(b"a", b"b", 1));
    assert!(!memtable.is_empty() && !memtable.range_tombstones().is_empty());
    assert_eq!(memtable.entries(), 0);
}

/// Readers find every range tombstone that was published.
#[test]
fn readers_find_all_published_range_tombstones() {
    let ranges = Arc::new(MemtableRanges::default());
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 1..=1500_u64 {
                let key = (sequence as u16).to_be_bytes();
                ranges.insert(RangeTombstone::new(&key, &[&key[..], &[0]].concat(), sequence));
                published.store(sequence, Ordering::Release);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = published.load(Ordering::Acquire);
                    for sequence in (1..=at).rev().take(20) {
                        let key = (sequence as u16).to_be_bytes();
                        assert_eq!(ranges.newest_cover(&key, at), Some(sequence));
                    }
                    if at == 1500 {
                        return;
                    }
                }
            });
        }
    });
}
