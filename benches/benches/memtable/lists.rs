//! The skiplist of the memtable versus that of `crossbeam-skiplist`.
//!
//! The memtable also sets the bits of its filter. The library gets its best case: key, trailer and
//! value in one allocation, ordered by one comparison of bytes. That order is correct only for keys
//! of equal length.

use std::{
    fs,
    hint::black_box,
    ops::Bound::Included,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, SamplingMode, Throughput};
use crossbeam_skiplist::SkipSet;
use sievedb_benches::{KEY_BYTES, VALUE_BYTES, key, value};
use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_memtable::Memtable;

/// Approximate number of entries of a full memtable of 32 MiB.
const ENTRIES: u64 = 200_000;

const THREADS: [usize; 4] = [1, 2, 4, 8];

type Key = [u8; KEY_BYTES];

trait List: Send + Sync {
    const NAME: &str;

    fn new() -> Self;

    fn insert(&self, key: &Key, sequence: u64, value: &[u8]);

    /// Returns the length of the newest value of `key`.
    fn get(&self, key: &Key) -> Option<usize>;

    /// Calls `visit` with each key and value, in ascending order.
    fn scan(&self, visit: impl FnMut(&[u8], &[u8]));

    /// The same in descending order.
    fn scan_back(&self, visit: impl FnMut(&[u8], &[u8]));
}

impl List for Arc<Memtable> {
    const NAME: &str = "own";

    fn new() -> Self {
        Self::new(Memtable::new(32 << 20))
    }

    fn insert(&self, key: &Key, sequence: u64, value: &[u8]) {
        let trailer = Trailer::new(sequence, Kind::Put);
        Memtable::insert(self, key_hash(key, 0), key, trailer, value);
    }

    fn get(&self, key: &Key) -> Option<usize> {
        self.get_with(InternalKey::seek(key, SEQUENCE_MAX), |_, value| value.len())
    }

    fn scan(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut cursor = Self::clone(self).cursor();
        cursor.seek_to_first();
        while let Some(key) = cursor.key() {
            visit(key.user_key, cursor.value_ref());
            cursor.next();
        }
    }

    fn scan_back(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut cursor = Self::clone(self).cursor();
        cursor.seek_to_last();
        while let Some(key) = cursor.key() {
            visit(key.user_key, cursor.value_ref());
            cursor.prev();
        }
    }
}

const TRAILER_END: usize = KEY_BYTES + size_of::<u64>();

fn encoded(key: &Key, sequence: u64) -> [u8; TRAILER_END] {
    let mut encoded = [0; TRAILER_END];
    encoded[..KEY_BYTES].copy_from_slice(key);
    encoded[KEY_BYTES..].copy_from_slice(&(!sequence).to_be_bytes());
    encoded
}

impl List for SkipSet<Box<[u8]>> {
    const NAME: &str = "crossbeam";

    fn new() -> Self {
        Self::new()
    }

    fn insert(&self, key: &Key, sequence: u64, value: &[u8]) {
        let mut entry = Vec::with_capacity(TRAILER_END + value.len());
        entry.extend_from_slice(&encoded(key, sequence));
        entry.extend_from_slice(value);
        Self::insert(self, entry.into());
    }

    fn get(&self, key: &Key) -> Option<usize> {
        let entry = self.lower_bound::<[u8]>(Included(&encoded(key, SEQUENCE_MAX)))?;
        entry.starts_with(key).then(|| entry.len() - TRAILER_END)
    }

    fn scan(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.iter().for_each(|entry| visit(&entry[..KEY_BYTES], &entry[TRAILER_END..]));
    }

    fn scan_back(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.iter().rev().for_each(|entry| visit(&entry[..KEY_BYTES], &entry[TRAILER_END..]));
    }
}

/// An order of keys: its name, and its key number `index`.
type Order = (&'static str, fn(u64) -> Key);

const ORDERS: [Order; 2] = [("random", key), ("ascending", ascending)];

fn ascending(index: u64) -> Key {
    let mut key = [b'0'; KEY_BYTES];
    key[KEY_BYTES - 8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// Calls `work` on `threads` threads, with each index once. Returns the elapsed time.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn in_threads(threads: usize, work: impl Fn(u64) + Sync) -> Duration {
    let begin = Instant::now();
    thread::scope(|scope| {
        for first in 0..threads {
            let work = &work;
            scope.spawn(move || (first as u64..ENTRIES).step_by(threads).for_each(work));
        }
    });
    begin.elapsed()
}

fn filled<L: List>(order: fn(u64) -> Key, threads: usize) -> (L, Duration) {
    let list = L::new();
    let took = in_threads(threads, |index| {
        list.insert(&order(index), index + 1, &value(index));
    });
    (list, took)
}

/// Returns the resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    kib.expect("Linux reports the resident memory of a process")
}

#[expect(clippy::print_stdout, reason = "criterion measures no memory")]
fn report_memory_of<L: List>() {
    let before = resident_kib();
    let (list, _) = filled::<L>(key, 1);
    let bytes = ((resident_kib() - before) << 10) as f64 / ENTRIES as f64;
    let overhead = bytes - (KEY_BYTES + VALUE_BYTES) as f64;
    println!("memtable/lists/{}: {bytes:.1} bytes per entry, {overhead:.1} of overhead", L::NAME);
    drop(list);
}

/// Prints the memory per entry. Must run first, because freed memory may still be resident.
pub(crate) fn report_memory() {
    report_memory_of::<Arc<Memtable>>();
    report_memory_of::<SkipSet<Box<[u8]>>>();
}

/// Reads a byte of key and value, and counts the entry.
fn count(key: &[u8], value: &[u8]) -> u64 {
    black_box((key[0], value[0]));
    1
}

fn measure<L: List>(criterion: &mut Criterion) {
    for (order_name, order) in ORDERS {
        let mut group = criterion.benchmark_group(format!("memtable/lists/{order_name}"));
        group.throughput(Throughput::Elements(ENTRIES));
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
        group.warm_up_time(Duration::from_millis(500));
        for threads in THREADS {
            group.bench_function(format!("insert/{threads} threads/{}", L::NAME), |bencher| {
                bencher
                    .iter_custom(|rounds| (0..rounds).map(|_| filled::<L>(order, threads).1).sum());
            });
        }
        let (list, _) = filled::<L>(order, 1);
        for threads in THREADS {
            group.bench_function(format!("get/{threads} threads/{}", L::NAME), |bencher| {
                bencher.iter_custom(|rounds| {
                    let get = |index: u64| {
                        // In another order than that of the inserts.
                        let index = index * 7919 % ENTRIES;
                        assert_eq!(list.get(&order(index)), Some(VALUE_BYTES));
                    };
                    (0..rounds).map(|_| in_threads(threads, get)).sum()
                });
            });
        }
        group.bench_function(format!("scan/{}", L::NAME), |bencher| {
            bencher.iter(|| {
                let mut entries = 0;
                list.scan(|key, value| entries += count(key, value));
                assert_eq!(entries, ENTRIES);
            });
        });
        group.bench_function(format!("scan back/{}", L::NAME), |bencher| {
            bencher.iter(|| {
                let mut entries = 0;
                list.scan_back(|key, value| entries += count(key, value));
                assert_eq!(entries, ENTRIES);
            });
        });
        group.finish();
    }
}

/// Benchmarks both lists.
pub(crate) fn compare(criterion: &mut Criterion) {
    measure::<Arc<Memtable>>(criterion);
    measure::<SkipSet<Box<[u8]>>>(criterion);
}
