//! Cost of lookups, and range tombstones beside points.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use sievedb_filter::FilterArena;
use sievedb_format::{
    InternalKey, Kind, RangeTombstone, RangeTombstoneSource, SEQUENCE_MAX, Trailer,
};
use sievedb_sstable::{
    BlockCache, BlockCounts, CacheUse, Compression, CursorOptions, FilterState, FilterUnusable,
    ReadError, Table, TableOptions, TableSource, TableWriter,
};

use crate::{
    allocations,
    support::{Entry, IDENTITY, build, build_as},
};

fn numbered(count: u64) -> Vec<Entry> {
    let user_key = |n: u64| format!("user{n:08}").into_bytes();
    (0..count).map(|n| Entry::put(&user_key(n), n + 1, &[b'v'; 100])).collect()
}

/// Options with which a few thousand entries need partitions.
fn two_levels() -> TableOptions {
    TableOptions::new().index_partition_bytes(2 << 10)
}

#[test]
fn pieces_cut_a_table_at_the_entries_of_its_index() {
    for options in [TableOptions::new(), two_levels()] {
        let (source, table) = watched(&numbered(5_000), options.clone());
        let all = table.pieces(0);
        assert!(all.len() > 4, "{options:?}: {all:?}");
        assert!(all.is_sorted_by(|one, next| one.0 <= next.0));
        let total: u64 = all.iter().map(|(_, bytes)| bytes).sum();
        assert!(total <= source.len() && total > source.len() / 2, "{total} bytes");
        let reads = source.reads.load(Ordering::Relaxed);
        let pieces = table.pieces(total / 3);
        assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<u64>(), total);
        assert!(matches!(pieces.len(), 2..=3), "{pieces:?}");
        assert_eq!(pieces.last().unwrap().0, all.last().unwrap().0);
        assert!(pieces.iter().all(|(key, _)| all.iter().any(|(other, _)| other == key)));
        assert!(pieces.last().unwrap().0.as_slice() >= b"user00004999".as_slice());
        assert_eq!(source.reads.load(Ordering::Relaxed), reads, "nothing is read");
    }
}

/// A table in memory that counts reads and fails on demand.
#[derive(Debug, Default)]
struct Watched {
    bytes: Bytes,
    reads: AtomicU64,
    fails: AtomicBool,
}

impl TableSource for Watched {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("planned"));
        }
        self.bytes.read_at(offset, bytes)
    }
}

fn watched(entries: &[Entry], options: TableOptions) -> (Arc<Watched>, Arc<Table>) {
    let built = build(entries, options);
    let source = Arc::new(Watched { bytes: built.bytes.clone().into(), ..Watched::default() });
    let table = Table::open(
        Arc::clone(&source) as Arc<dyn TableSource>,
        IDENTITY,
        built.summary.bytes,
        Arc::new(BlockCache::new(16 << 20)),
    );
    (source, Arc::new(table.unwrap()))
}

/// A scan of a whole table takes a few reads per partition: the length of reads is kept across
/// partitions.
#[test]
fn read_ahead_continues_across_partitions() {
    let entries = numbered(20_000);
    let (source, table) = watched(&entries, two_levels());
    let partitions = table.properties().index_partitions;
    let blocks = table.properties().data_blocks;
    assert!(partitions > 3 && blocks > 20 * partitions, "{blocks} blocks, {partitions} partitions");
    source.reads.store(0, Ordering::Relaxed);
    let mut cursor = Arc::clone(&table).cursor(CursorOptions::whole_table());
    let mut found = 0;
    cursor.seek_to_first().unwrap();
    while cursor.key().is_some() {
        found += 1;
        cursor.next().unwrap();
    }
    assert_eq!(found, entries.len());
    let reads = source.reads.load(Ordering::Relaxed);
    // Reads each partition, and its data at once.
    assert!(reads <= 3 * partitions, "{reads} reads for {partitions} partitions");
}

#[test]
fn a_lookup_reads_a_block_once() {
    let entries = numbered(20_000);
    let (source, table) = watched(&entries, two_levels());
    assert_eq!(table.properties().index_levels, 2);
    let opening = source.reads.swap(0, Ordering::Relaxed);
    assert!(opening <= 8, "{opening} reads");
    let mut counts = BlockCounts::default();
    table.get(&entries[777].user_key, SEQUENCE_MAX, &mut counts).unwrap().unwrap();
    assert_eq!(source.reads.load(Ordering::Relaxed), 2);
    assert_eq!((counts.data_block_requests, counts.index_block_requests), (1, 1));
    assert_eq!(counts.blocks_read, 2);
    assert!((2000..24_000).contains(&counts.bytes_read), "{counts:?}");
    for version in [SEQUENCE_MAX, 778, 1] {
        let before = counts;
        table.get(&entries[777].user_key, version, &mut counts).unwrap();
        assert_eq!(counts.blocks_read, before.blocks_read);
        assert_eq!(counts.data_block_requests, before.data_block_requests + 1);
    }
    assert_eq!(source.reads.load(Ordering::Relaxed), 2);
}

#[test]
fn a_small_index_is_resident() {
    let entries = numbered(1000);
    let (source, table) = watched(&entries, TableOptions::new());
    assert_eq!((table.properties().index_levels, table.properties().index_partitions), (1, 0));
    source.reads.store(0, Ordering::Relaxed);
    let mut counts = BlockCounts::default();
    table.get(&entries[500].user_key, SEQUENCE_MAX, &mut counts).unwrap().unwrap();
    assert_eq!(source.reads.load(Ordering::Relaxed), 1);
    assert_eq!((counts.data_block_requests, counts.index_block_requests), (1, 0));
}

#[test]
fn a_cached_lookup_allocates_nothing() {
    let entries = numbered(20_000);
    let (_, table) = watched(&entries, two_levels());
    let keys = [entries[5000].user_key.clone(), b"user00005000x".to_vec(), b"zebra".to_vec()];
    let mut counts = BlockCounts::default();
    for key in &keys {
        // Twice: the first clone of a buffer allocates its reference count.
        table.get(key, SEQUENCE_MAX, &mut counts).unwrap();
        table.get(key, SEQUENCE_MAX, &mut counts).unwrap();
    }
    for key in &keys {
        let get = || table.get(key, SEQUENCE_MAX, &mut counts).unwrap();
        let (_, allocations) = allocations::count_in(get);
        assert_eq!(allocations, 0, "{key:?}");
    }
}

/// A memory-mapped source.
#[derive(Debug)]
pub(crate) struct Mapped(pub(crate) Bytes);

impl TableSource for Mapped {
    fn len(&self) -> u64 {
        TableSource::len(&self.0)
    }

    fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
        self.0.read_at(offset, bytes)
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

#[test]
fn values_share_the_bytes_of_a_mapped_source() {
    let entries = numbered(100);
    let built = build(&entries, TableOptions::new().compression(Compression::None));
    let file = Bytes::from(built.bytes.clone());
    let cache = Arc::new(BlockCache::new(1 << 20));
    let source: Arc<dyn TableSource> = Arc::new(Mapped(file.clone()));
    let table = Table::open(source, IDENTITY, built.summary.bytes, cache).unwrap();
    let found = table.get(&entries[50].user_key, SEQUENCE_MAX, &mut BlockCounts::default());
    let (_, value) = found.unwrap().unwrap();
    assert!(file.as_ptr_range().contains(&value.as_ptr()), "the value was copied");
}

#[test]
fn bypassing_cursors_do_not_change_the_cache() {
    let built = build(&numbered(20_000), two_levels());
    let cache = Arc::new(BlockCache::new(16 << 20));
    let source: Arc<dyn TableSource> = Arc::new(Bytes::from(built.bytes));
    let table = Table::open(source, IDENTITY, built.summary.bytes, cache.clone());
    let table = Arc::new(table.unwrap());
    assert!(table.properties().index_partitions > 1);
    let scan = |cache_use| {
        let mut cursor = Arc::clone(&table).cursor(cache_use);
        cursor.seek_to_first().unwrap();
        while cursor.key().is_some() {
            cursor.next().unwrap();
        }
        cursor.counts()
    };
    let counts = scan(CacheUse::Bypass);
    assert_eq!(counts.data_block_requests, table.properties().data_blocks);
    assert_eq!(counts.index_block_requests, table.properties().index_partitions);
    assert_eq!(counts.blocks_read, counts.data_block_requests + counts.index_block_requests);
    assert!(cache.is_empty());
    scan(CacheUse::Fill);
    assert!(cache.memory_bytes() > 2_000_000 && cache.memory_bytes() <= cache.capacity_bytes());
    assert_eq!(scan(CacheUse::Bypass).blocks_read, 0, "cached blocks are used");
}

#[test]
fn tables_have_distinct_cache_keys() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let open = |value: &[u8]| {
        // The same file id, as after a restore, but another table number.
        let built = build(&[Entry::put(b"key", 1, value)], TableOptions::new());
        let source: Arc<dyn TableSource> = Arc::new(Bytes::from(built.bytes));
        Table::open(source, IDENTITY, built.summary.bytes, Arc::clone(&cache)).unwrap()
    };
    let tables = [open(b"old"), open(b"new")];
    let get = |table: &Table| table.get(b"key", 1, &mut BlockCounts::default()).unwrap().unwrap().1;
    assert_eq!(tables.each_ref().map(get), ["old", "new"]);
    assert_eq!(tables.each_ref().map(get), ["old", "new"]);
}

#[test]
fn read_errors_are_returned_and_transient() {
    let entries = numbered(20_000);
    let (source, table) = watched(&entries, TableOptions::new());
    let mut counts = BlockCounts::default();
    let mut cursor = Arc::clone(&table).cursor(CacheUse::Bypass);
    cursor.seek_to_first().unwrap();
    source.fails.store(true, Ordering::Relaxed);
    let found = table.get(&entries[0].user_key, SEQUENCE_MAX, &mut counts);
    assert!(matches!(found, Err(ReadError::Io(_))), "{found:?}");
    let mut failed = false;
    for _ in 0..100 {
        if cursor.next().is_err() {
            failed = true;
            break;
        }
    }
    assert!(failed, "a block holds fewer than 100 entries");
    assert_eq!(cursor.key(), None);
    source.fails.store(false, Ordering::Relaxed);
    assert!(table.get(&entries[0].user_key, SEQUENCE_MAX, &mut counts).unwrap().is_some());
    cursor.seek(entries[60].key()).unwrap();
    assert_eq!(cursor.key(), Some(entries[60].key()));
}

#[test]
fn an_unreadable_filter_is_unusable() {
    // Fails for reads of the filter.
    #[derive(Debug)]
    struct BadFilter(Bytes, u64);
    impl TableSource for BadFilter {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Bytes> {
            if offset == self.1 {
                return Err(io::Error::other("planned"));
            }
            self.0.read_at(offset, bytes)
        }
    }
    let built = build(&numbered(100), TableOptions::new());
    let handle = built.summary.filter.unwrap();
    let source = BadFilter(built.bytes.into(), handle.offset);
    let filter = FilterState::load(&source, &IDENTITY, None, handle, &FilterArena::heap());
    assert!(matches!(filter, FilterState::Unusable(FilterUnusable::Io(_))), "{filter:?}");
}

#[test]
fn range_tombstones_are_separate_from_points() {
    let points = [Entry::put(b"d", 5, b"v"), Entry::put(b"m", 5, b"v")];
    let tombstones = [RangeTombstone::new(b"a", b"f", 9), RangeTombstone::new(b"c", b"z", 3)];
    let built = build_as(IDENTITY, &points, &tombstones, TableOptions::new());
    let summary = &built.summary;
    let bounds = &summary.bounds;
    assert_eq!((&*bounds.smallest, &*bounds.largest), (&b"a"[..], &b"z"[..]));
    assert!(!bounds.smallest_excluded && bounds.largest_excluded, "z is the end of a tombstone");
    assert_eq!(built.open().properties().bounds, *bounds);
    assert_eq!((summary.entries, summary.tombstones), (4, 2));
    assert_eq!((summary.smallest_sequence, summary.largest_sequence), (3, 9));
    let table = built.open();
    let ranges = table.range_tombstones();
    assert!(!ranges.is_empty());
    assert_eq!(ranges.newest_cover(b"d", SEQUENCE_MAX), Some(9));
    assert_eq!(ranges.newest_cover(b"d", 8), Some(3));
    assert_eq!(ranges.newest_cover(b"m", SEQUENCE_MAX), Some(3));
    // Lookups ignore range tombstones, and the filter contains only points.
    let found = table.get(b"d", SEQUENCE_MAX, &mut BlockCounts::default()).unwrap();
    assert_eq!(found, Some((points[0].trailer, Bytes::from_static(b"v"))));
    assert_eq!(built.filter().resident().unwrap().key_count(), 2);

    let only_ranges = build_as(IDENTITY, &[], &tombstones[..1], TableOptions::new());
    assert_eq!(
        (&*only_ranges.summary.bounds.smallest, &*only_ranges.summary.bounds.largest),
        (&b"a"[..], &b"f"[..])
    );
    let table = only_ranges.open();
    assert_eq!(table.range_tombstones().newest_cover(b"e", 9), Some(9));
    let mut cursor = table.cursor(CacheUse::Fill);
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), None);
}

#[test]
fn versions_across_blocks_are_found() {
    let mut entries = vec![Entry::put(b"a", 1, b"v")];
    entries.extend((1..=5000).rev().map(|sequence| Entry::put(b"k", sequence * 2, &[b'v'; 40])));
    entries.push(Entry::put(b"l", 1, b"v"));
    let built = build(&entries, TableOptions::new().block_bytes(1 << 10));
    let table = built.open();
    assert!(table.properties().data_blocks > 100);
    assert_eq!(built.filter().resident().unwrap().key_count(), 3);
    let mut counts = BlockCounts::default();
    for at in 0..10_010 {
        let found = table.get(b"k", at, &mut counts).unwrap();
        let want = (at.min(10_000) / 2 * 2 > 0).then_some(at.min(10_000) / 2 * 2);
        assert_eq!(found.map(|(trailer, _)| trailer.sequence()), want, "at {at}");
    }
}

#[test]
fn large_values_round_trip() {
    let large: Vec<u8> = (0..20_u32 << 20).map(|n| (n >> 3) as u8).collect();
    let entries =
        [Entry::put(b"a", 1, b"v"), Entry::put(b"b", 1, &large), Entry::put(b"c", 1, b"v")];
    for compression in [Compression::None, Compression::Lz4] {
        let table = build(&entries, TableOptions::new().compression(compression)).open();
        for entry in &entries {
            let found = table.get(&entry.user_key, 1, &mut BlockCounts::default()).unwrap();
            assert!(found.unwrap().1 == entry.value);
        }
    }
}

#[test]
fn the_writer_refuses_invalid_entries() {
    let put = |key, sequence| InternalKey::new(key, Trailer::new(sequence, Kind::Put));
    let long = vec![b'k'; (64 << 10) + 1];
    let kind = |kind| InternalKey::new(b"k", Trailer::new(9, kind));
    let cases = [
        ("the same entry", put(b"b", 5)),
        ("a newer version after an older one", put(b"b", 6)),
        ("a smaller key", put(b"a", 1)),
        ("a long key", put(&long, 1)),
        ("a range", kind(Kind::RangeTombstone)),
        ("no expiry", kind(Kind::PutWithExpiry)),
    ];
    for (name, key) in cases {
        let mut writer = TableWriter::new(Vec::new(), IDENTITY, TableOptions::new()).unwrap();
        writer.add(put(b"b", 5), b"").unwrap();
        let error = writer.add(key, b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
    }
    let options = TableOptions::new().block_bytes(1);
    let error = TableWriter::new(Vec::new(), IDENTITY, options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let mut writer = TableWriter::new(Vec::new(), IDENTITY, TableOptions::new()).unwrap();
    let error = writer.add_range_tombstone(RangeTombstone::new(b"b", b"a", 1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn the_estimate_is_close() {
    let options = TableOptions::new().compression(Compression::None);
    for count in [0, 1, 100, 20_000] {
        let entries = numbered(count);
        let mut writer = TableWriter::new(Vec::new(), IDENTITY, options.clone()).unwrap();
        for entry in &entries {
            writer.add(entry.key(), &entry.value).unwrap();
        }
        assert_eq!(writer.entries(), count);
        let (written, estimated) = (writer.bytes_written(), writer.estimated_bytes());
        let (bytes, _) = writer.finish().unwrap();
        assert!(written <= estimated);
        let difference = (bytes.len() as u64).abs_diff(estimated);
        assert!(difference < 600 + bytes.len() as u64 / 100, "{estimated} of {}", bytes.len());
    }
}
