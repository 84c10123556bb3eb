//! Advice of cursors to the source before reads.

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

use super::support::{Entry, build, seek_advised};

/// A table in memory that records reads and advice.
#[derive(Debug)]
struct Recorder {
    bytes: Bytes,
    advised: Mutex<Vec<Range<u64>>>,
    read: Mutex<Vec<Range<u64>>>,
}

impl Recorder {
    /// Returns the advice and the reads since the last call.
    fn take(&self) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let take = |ranges: &Mutex<Vec<_>>| std::mem::take(&mut *ranges.lock().unwrap());
        (take(&self.advised), take(&self.read))
    }
}

impl TableSource for Recorder {
    fn len(&self) -> u64 {
        TableSource::len(&self.bytes)
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        self.read.lock().unwrap().push(offset..offset + bytes as u64);
        self.bytes.read_at(offset, bytes)
    }

    fn advise_read(&self, ranges: &[Range<u64>]) {
        self.advised.lock().unwrap().extend_from_slice(ranges);
    }
}

const KEYS: u32 = 4000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Returns a table and its source. The length of partitions decides the levels of the index.
fn table(index_partition_bytes: usize, cache_bytes: u64) -> (Arc<Table>, Arc<Recorder>) {
    let entries: Vec<_> = (0..KEYS).map(|n| Entry::put(&key(2 * n), 1, &[7; 90])).collect();
    let options = TableOptions::new()
        .block_bytes(1 << 10)
        .index_partition_bytes(index_partition_bytes)
        .compression(Compression::None);
    let built = build(&entries, options);
    let bytes = Bytes::from(built.bytes.clone());
    let source = Recorder { bytes, advised: Mutex::default(), read: Mutex::default() };
    let source = Arc::new(source);
    let cache = Arc::new(BlockCache::new(cache_bytes));
    let shared = Arc::clone(&source);
    let table = Table::open(shared, built.identity, built.summary.bytes, cache).unwrap();
    (Arc::new(table), source)
}

fn reading_ahead() -> CursorOptions {
    CursorOptions { read_ahead_bytes_max: 64 << 10, ..CursorOptions::default() }
}

#[test]
fn a_backward_seek_is_advised() {
    for (levels, index_partition_bytes) in [(1, 1 << 20), (2, 1 << 10)] {
        let (table, source) = table(index_partition_bytes, 8 << 20);
        assert_eq!(table.properties().index_levels, levels);
        let mut cursor = Arc::clone(&table).cursor(reading_ahead());
        for number in [501, 7301, 4401, 2601] {
            let case = format!("{levels} levels, {number}");
            let user_key = key(number);
            let target = InternalKey::seek(&user_key, 9);
            source.take();
            cursor.advise_seek_before(target);
            let (mut advised, _) = source.take();
            if levels == 2 {
                // Without the partition, only that is advised. It also leads to an earlier block.
                table.get(&key(number - 101), 9, &mut BlockCounts::default()).unwrap();
                assert_eq!(source.take().1[..1], advised, "{case}");
                cursor.advise_seek_before(target);
                advised = source.take().0;
            }
            cursor.seek_before(target).unwrap();
            assert_eq!(source.take(), (Vec::new(), advised), "{case}");
            assert!(cursor.has_missed_cache(), "{case}");
            cursor.advise_seek_before(target);
            assert_eq!(source.take(), (Vec::new(), Vec::new()), "{case}: cached");
            cursor.seek_before(target).unwrap();
            assert!(!cursor.has_missed_cache(), "{case}");
        }
    }
}

#[test]
fn seek_steps_are_advised_and_predict_misses() {
    for (levels, index_partition_bytes) in [(1, 1 << 20), (2, 1 << 10)] {
        let (table, source) = table(index_partition_bytes, 8 << 20);
        assert_eq!(table.properties().index_levels, levels);
        let mut cursor = Arc::clone(&table).cursor(reading_ahead());
        for number in [501, 7301, 4401, 2601] {
            let user_key = key(number);
            let target = InternalKey::seek(&user_key, 9);
            for is_cached in [false, true] {
                let mut reads = 0;
                for step in 0..TableCursor::SEEK_STEPS {
                    let case = format!("{levels} levels, {number}, cached: {is_cached}, {step}");
                    source.take();
                    cursor.advise_seek_step(step);
                    let (advised, read) = source.take();
                    assert!(read.is_empty(), "{case}");
                    if !advised.is_empty() {
                        assert!(cursor.has_missed_cache(), "{case}");
                    }
                    cursor.seek_step(step, target).unwrap();
                    assert_eq!(source.take(), (Vec::new(), advised.clone()), "{case}");
                    reads += advised.len();
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
fn the_first_read_is_as_long_as_recent_scans() {
    let (table, source) = table(1 << 20, 0);
    // Scans 25 entries, about eight per block, and returns the reads.
    let scan = |start: u32, end: Bound<Bytes>| {
        let mut cursor = Arc::clone(&table).cursor(CursorOptions { end, ..reading_ahead() });
        let start = key(start);
        source.take();
        seek_advised(&mut cursor, InternalKey::seek(&start, 9)).unwrap();
        for _ in 1..25 {
            if cursor.is_positioned() {
                cursor.next().unwrap();
            }
        }
        let (advised, read) = source.take();
        assert_eq!(advised, read[..1], "from {start:?}");
        read
    };
    let first = scan(1000, Bound::Unbounded);
    assert!(first.len() >= 3, "{first:?}");
    scan(2000, Bound::Unbounded);
    let calls: usize = (0..100).map(|n| scan(n * 71, Bound::Unbounded).len()).sum();
    assert!(calls <= 150, "{calls} calls for 100 scans");
    // Blocks beyond the bound are not read, though recent scans were longer.
    let bounded = scan(4000, Bound::Excluded(Bytes::copy_from_slice(&key(4006))));
    let single = first[0].end - first[0].start;
    let bytes: u64 = bounded.iter().map(|range| range.end - range.start).sum();
    assert!(bytes <= 2 * single, "{bounded:?}");
}
