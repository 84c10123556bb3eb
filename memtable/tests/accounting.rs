//! The memory that a memtable reports against the memory that it allocates.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use crossbeam_skiplist::SkipSet;
use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_memtable::{Memtable, spare_bytes};

/// Counts per thread, so that concurrent tests do not interfere.
struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
    static LIVE_CHUNK_BYTES: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the bytes of glibc's chunk for an allocation: a header of 8 bytes, rounded up to 16.
fn chunk_bytes(layout: Layout) -> isize {
    (layout.size() + 8).next_multiple_of(16).max(32).cast_signed()
}

// SAFETY: every call goes unchanged to the system's allocator. The counters are plain cells without
// allocation or destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size().cast_signed());
        LIVE_CHUNK_BYTES.set(LIVE_CHUNK_BYTES.get() + chunk_bytes(layout));
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size().cast_signed());
        LIVE_CHUNK_BYTES.set(LIVE_CHUNK_BYTES.get() - chunk_bytes(layout));
        // SAFETY: the caller upholds the contract of `dealloc`; `alloc` got this memory from the
        // system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that this thread has allocated and not freed.
fn live_bytes() -> isize {
    LIVE_BYTES.get()
}

fn fill(entries: u64, key_len: usize, value_len: usize) -> Arc<Memtable> {
    let memtable = Arc::new(Memtable::new(1 << 20));
    let (mut key, value) = (vec![0; key_len], vec![7; value_len]);
    for sequence in 1..=entries {
        let spread = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let len = key_len.min(spread.len());
        key[..len].copy_from_slice(&spread[..len]);
        memtable.reserve(Memtable::charge(key_len, value_len));
        let trailer = Trailer::new(sequence, Kind::Put);
        memtable.insert(key_hash(&key, 0), &key, trailer, &value);
    }
    memtable
}

/// Returns the maximum allocation: the reported bytes, the spare bytes that the owner also charges,
/// and 0.5 %.
///
/// Spare bytes that are not charged take up to 1/256. The rest is for tower heights, which vary by
/// 0.1 % (one standard deviation) in 10,000 small entries.
fn allocated_max(memory_bytes: usize) -> f64 {
    (memory_bytes + spare_bytes(memory_bytes)) as f64 * 1.005
}

#[test]
fn reported_bytes_match_the_allocator() {
    for (key_len, value_len) in [(0, 0), (8, 8), (22, 100), (23, 100), (77, 1000), (1000, 10)] {
        for entries in [10_000, 30_000] {
            let name = format!("{entries} entries, key {key_len}, value {value_len}");
            let before = live_bytes();
            let memtable = fill(entries, key_len, value_len);
            let mapped_bytes = memtable.mapped_bytes();
            let allocated = (live_bytes() - before) as f64 + mapped_bytes as f64;
            let memtable_bytes = memtable.memory_bytes();
            let reported = memtable_bytes as f64;
            drop(memtable);
            let kept = live_bytes() - before;
            let error = reported / allocated - 1.0;
            eprintln!(
                "{name}: reported {reported}, allocated {allocated}, {:+.2} %",
                error * 100.0
            );
            assert!(error < 0.015, "{name}: reported {reported}, allocated {allocated}");
            let most = allocated_max(memtable_bytes);
            assert!(allocated <= most, "{name}: reported {reported}, allocated {allocated}");
            assert_eq!(kept, 0, "{name}: leaked bytes");
        }
    }
}

#[test]
fn an_empty_memtable_reports_its_bytes() {
    let before = live_bytes();
    let memtable = Memtable::new(1 << 24);
    // The memtable itself is on the stack here.
    let allocated = live_bytes() - before + size_of::<Memtable>().cast_signed();
    assert_eq!(memtable.memory_bytes().cast_signed(), allocated);
}

#[test]
fn lookups_allocate_nothing() {
    let memtable = fill(1000, 16, 100);
    let mut present = [0; 16];
    present[..8].copy_from_slice(&0x9e37_79b9_7f4a_7c15_u64.to_be_bytes());
    let before = ALLOCATIONS.get();
    let absent = memtable.get(&[0xff; 40], SEQUENCE_MAX);
    let target = InternalKey::seek(&present, SEQUENCE_MAX);
    let found = memtable.get_with(target, |_, value| value == [7; 100]);
    let denied = (0..100).filter(|&hash| !memtable.may_contain_hash(hash)).count();
    let after = ALLOCATIONS.get();

    assert_eq!(after - before, 0, "allocations");
    assert!(absent.is_none() && found == Some(true) && denied > 0);
}

#[test]
fn a_scan_allocates_nothing() {
    let memtable = fill(10_000, 16, 0);
    let before = ALLOCATIONS.get();
    let mut cursor = memtable.cursor();
    cursor.seek_to_first();
    let mut entries = 0;
    while cursor.key().is_some() {
        entries += 1;
        cursor.next();
    }
    assert_eq!(entries, 10_000);
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations");
}

/// Dropping a memtable frees few large chunks: see the module `arena`.
#[test]
fn entries_are_allocated_in_slabs() {
    let before = ALLOCATIONS.get();
    let memtable = fill(30_000, 16, 0);
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!(memtable.entries(), 30_000);
    assert!(allocations < 300, "{allocations} allocations");
}

/// The reason for this crate's own skiplist: see "The memtable's skiplist" in `docs/design.md`.
#[test]
fn entries_are_smaller_than_those_of_crossbeam() {
    const ENTRIES: u64 = 50_000;
    const ENTRY_BYTES: usize = 116;

    let before = LIVE_CHUNK_BYTES.get();
    let memtable = fill(ENTRIES, 16, 100);
    let own = LIVE_CHUNK_BYTES.get() - before + memtable.mapped_bytes().cast_signed();
    let before = LIVE_CHUNK_BYTES.get();
    let set = SkipSet::<Box<[u8]>>::new();
    for sequence in 1..=ENTRIES {
        let mut entry = vec![7; 16 + size_of::<u64>() + 100];
        let spread = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        entry[..8].copy_from_slice(&spread.to_be_bytes());
        entry[16..24].copy_from_slice(&(!sequence).to_be_bytes());
        set.insert(entry.into());
    }
    let library = LIVE_CHUNK_BYTES.get() - before;
    drop((memtable, set));

    let [own, library] = [own, library].map(|bytes| bytes as f64 / ENTRIES as f64);
    let overhead = |bytes: f64| bytes - ENTRY_BYTES as f64;
    eprintln!("bytes per entry: {own:.1}, crossbeam {library:.1}");
    eprintln!("overhead: {:.1}, crossbeam {:.1}", overhead(own), overhead(library));
    assert!(library >= 1.3 * own, "{library:.1} bytes per entry against {own:.1}");
}
