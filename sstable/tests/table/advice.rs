//! What cursors tell the source before they read.

use std::{
    io,
    ops::{Bound, Range},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use sievedb_format::InternalKey;
use sievedb_sstable::{
    BlockCache, BlockCounts, Compression, CursorOptions, Table, TableCursor, TableOptions,
    TableSource,
};

use super::support::{Entry, build, seek_announced};

/// A table in memory, and what was asked of it.
#[derive(Debug)]
struct Told {
    bytes: Bytes,
    announced: Mutex<Vec<Range<u64>>>,
    read: Mutex<Vec<Range<u64>>>,
}

impl Told {
    /// What was announced and read since the last call.
    fn take(&self) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let take = |places: &Mutex<Vec<_>>| std::mem::take(&mut *places.lock().unwrap());
        (take(&self.announced), take(&self.read))
    }
}

impl TableSource for Told {
    fn len(&self) -> u64 {
        TableSource::len(&self.bytes)
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        self.read.lock().unwrap().push(offset..offset + bytes as u64);
        self.bytes.read_at(offset, bytes)
    }

    fn advise_read(&self, places: &[Range<u64>]) {
        self.announced.lock().unwrap().extend_from_slice(places);
    }
}

const KEYS: u32 = 4000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A table whose index has one level, or two, over a cache of so many bytes.
fn table(index_partition_bytes: usize, cache_bytes: u64) -> (Arc<Table>, Arc<Told>) {
    let entries: Vec<_> = (0..KEYS).map(|n| Entry::put(&key(2 * n), 1, &[7; 90])).collect();
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(index_partition_bytes)
        .compression(Compression::None);
    let built = build(&entries, options);
    let bytes = Bytes::from(built.bytes.clone());
    let told = Told { bytes, announced: Mutex::default(), read: Mutex::default() };
    let told = Arc::new(told);
    let (source, cache) = (Arc::clone(&told), Arc::new(BlockCache::new(cache_bytes)));
    let table = Table::open(source, built.identity, built.summary.bytes, cache).unwrap();
    (Arc::new(table), told)
}

fn reading_ahead() -> CursorOptions {
    CursorOptions { read_ahead_bytes_max: 64 << 10, ..CursorOptions::default() }
}

#[test]
fn what_a_search_back_reads_is_announced() {
    for (levels, index_partition_bytes) in [(1, 1 << 20), (2, 1 << 10)] {
        let (table, told) = table(index_partition_bytes, 8 << 20);
        assert_eq!(table.properties().index_levels, levels);
        let mut cursor = Arc::clone(&table).cursor(reading_ahead());
        for number in [501, 7301, 4401, 2601] {
            let case = format!("{levels} levels, {number}");
            let user_key = key(number);
            let target = InternalKey::seek(&user_key, 9);
            told.take();
            cursor.advise_seek_before(target);
            let (mut announced, _) = told.take();
            if levels == 2 {
                // The index partition comes first: it leads to this block, and to one before.
                table.get(&key(number - 101), 9, &mut BlockCounts::default()).unwrap();
                assert_eq!(told.take().1[..1], announced, "{case}");
                cursor.advise_seek_before(target);
                announced = told.take().0;
            }
            cursor.seek_before(target).unwrap();
            assert_eq!(told.take(), (Vec::new(), announced), "{case}");
            assert!(cursor.has_missed_cache(), "{case}");
            cursor.advise_seek_before(target);
            assert_eq!(told.take(), (Vec::new(), Vec::new()), "{case}: it is cached");
            cursor.seek_before(target).unwrap();
            assert!(!cursor.has_missed_cache(), "{case}");
        }
    }
}

#[test]
fn what_the_steps_of_a_seek_read_is_announced_and_foretold() {
    for (levels, index_partition_bytes) in [(1, 1 << 20), (2, 1 << 10)] {
        let (table, told) = table(index_partition_bytes, 8 << 20);
        assert_eq!(table.properties().index_levels, levels);
        let mut cursor = Arc::clone(&table).cursor(reading_ahead());
        for number in [501, 7301, 4401, 2601] {
            let user_key = key(number);
            let target = InternalKey::seek(&user_key, 9);
            for is_cached in [false, true] {
                let mut reads = 0;
                for step in 0..TableCursor::SEEK_STEPS {
                    let case = format!("{levels} levels, {number}, cached: {is_cached}, {step}");
                    told.take();
                    cursor.advise_seek_step(step);
                    let (announced, read) = told.take();
                    assert!(read.is_empty(), "{case}");
                    if !announced.is_empty() {
                        assert!(cursor.has_missed_cache(), "{case}");
                    }
                    cursor.seek_step(step, target).unwrap();
                    assert_eq!(told.take(), (Vec::new(), announced.clone()), "{case}");
                    reads += announced.len();
                }
                let want = if is_cached { 0 } else { levels as usize };
                assert_eq!(reads, want, "{levels} levels, {number}");
                assert_eq!(cursor.has_missed_cache(), !is_cached, "{levels} levels, {number}");
                assert!(cursor.is_positioned());
            }
        }
    }
}

#[test]
fn a_search_reads_what_the_ones_before_had_in_common() {
    let (table, told) = table(1 << 20, 0);
    // Takes 25 entries, of some eight in a block; returns the number of reads.
    let scan = |start: u32, end: Bound<Bytes>| {
        let mut cursor = Arc::clone(&table).cursor(CursorOptions { end, ..reading_ahead() });
        let start = key(start);
        told.take();
        seek_announced(&mut cursor, InternalKey::seek(&start, 9)).unwrap();
        for _ in 1..25 {
            if cursor.is_positioned() {
                cursor.next().unwrap();
            }
        }
        let (announced, read) = told.take();
        assert_eq!(announced, read[..1], "from {start:?}");
        read
    };
    let first = scan(1000, Bound::Unbounded);
    assert!(first.len() >= 3, "{first:?}");
    scan(2000, Bound::Unbounded);
    let calls: usize = (0..100).map(|n| scan(n * 71, Bound::Unbounded).len()).sum();
    assert!(calls <= 150, "{calls} calls for 100 scans");
    // No block behind the bound is read, though more was used before.
    let bounded = scan(4000, Bound::Excluded(Bytes::copy_from_slice(&key(4006))));
    let single = first[0].end - first[0].start;
    let bytes: u64 = bounded.iter().map(|place| place.end - place.start).sum();
    assert!(bytes <= 2 * single, "{bounded:?}");
}
