//! Random tables against a sorted list.

use std::{
    collections::BTreeSet,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, sample::Index};
use sievedb_filter::key_hash;
use sievedb_format::{InternalKey, Kind, SEQUENCE_MAX, Trailer};
use sievedb_sstable::{
    BlockCounts, CacheUse, Compression, CursorOptions, Table, TableCursor, TableOptions, ValueRef,
};

use crate::support::{Built, Entry, IDENTITY, build, model_get, proptest_config, seek_advised};

fn user_key() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(vec![0, b'a', b'b', 0xff]);
    prop_oneof![
        1 => Just(Vec::new()),
        20 => vec(letters, 0..6),
        8 => (0..2000_u32).prop_map(|n| format!("user{n:06}").into_bytes()),
        4 => vec(any::<u8>(), 0..200),
        1 => any::<u8>().prop_map(|byte| vec![byte; 64 << 10]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => vec(any::<u8>(), 0..20),
        4 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, n)| vec![byte; n]),
        1 => vec(any::<u8>(), 2000..9000),
    ]
}

/// Generates sorted entries. A user key has up to 300 versions, which span several blocks.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let versions = prop_oneof![6 => 1..3_usize, 1 => 1..300_usize];
    let key = (user_key(), versions, 1..1000_u64, value());
    vec(key, 0..60).prop_map(|keys| {
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for (user_key, versions, first, value) in keys {
            if !seen.insert(user_key.clone()) {
                continue;
            }
            for version in 0..versions as u64 {
                let sequence = first + version * (1 + first % 3);
                entries.push(match sequence % 5 {
                    0 => Entry::tombstone(&user_key, sequence),
                    _ => Entry::put(&user_key, sequence, &value),
                });
            }
        }
        entries.sort_by(|a, b| a.key().cmp(&b.key()));
        entries
    })
}

fn options() -> impl Strategy<Value = TableOptions> {
    let blocks = prop::sample::select(vec![1 << 10, 4 << 10, 64 << 10]);
    let partitions = prop::sample::select(vec![1 << 10, 16 << 10]);
    let filter = prop::sample::select(vec![0.0, 10.0, 20.5]);
    (blocks, partitions, filter, any::<bool>()).prop_map(|(blocks, partitions, filter, lz4)| {
        TableOptions::new()
            .block_bytes(blocks)
            .index_partition_bytes(partitions)
            .filter_bits_per_key(filter)
            .compression(if lz4 { Compression::Lz4 } else { Compression::None })
    })
}

fn check_get(table: &Table, entries: &[Entry], user_key: &[u8], sequence: u64) {
    let mut counts = BlockCounts::default();
    let found = table.get(user_key, sequence, &mut counts).unwrap();
    let found = found.map(|(trailer, value)| Entry {
        user_key: user_key.to_vec(),
        trailer,
        value: value.to_vec(),
    });
    assert_eq!(found.as_ref(), model_get(entries, user_key, sequence));
    assert!(counts.data_block_requests <= 1, "{counts:?}");
    assert!(counts.index_block_requests <= 1, "{counts:?}");
}

/// Reads all versions of a key, newest first.
fn check_versions(table: &Table, entries: &[Entry], user_key: &[u8], sequence: u64) {
    let of_key = |entry: &&Entry| entry.user_key == user_key;
    let mut want =
        entries.iter().filter(|entry| of_key(entry) && entry.trailer.sequence() <= sequence);
    let mut target = InternalKey::seek(user_key, sequence);
    loop {
        let mut counts = BlockCounts::default();
        let take = |trailer: Trailer, value: ValueRef<'_>| {
            let entry = want.next().expect("the model has the version");
            assert_eq!((trailer, value.as_slice()), (entry.trailer, &*entry.value));
            trailer
        };
        let found = table.get_with(target, CacheUse::Fill, &mut counts, take).unwrap();
        assert!(counts.data_block_requests <= 1, "{counts:?}");
        let Some(trailer) = found else { break };
        target = InternalKey::new(user_key, trailer.older());
    }
    assert_eq!(want.next(), None);
}

/// Looks up present and absent keys in one batch.
fn check_get_many(table: &Table, entries: &[Entry], absent: &[(Vec<u8>, u64)], sequence: u64) {
    let own = entries.iter().map(|entry| &entry.user_key);
    let mut keys: Vec<_> = own.chain(absent.iter().map(|(key, _)| key)).collect();
    keys.sort_unstable();
    let mut counts = BlockCounts::default();
    let mut found = vec![None; keys.len()];
    let asked = keys.iter().map(|key| &key[..]);
    let take = |place: usize, trailer, value: ValueRef<'_>| {
        let (user_key, value) = (keys[place].clone(), value.to_bytes().to_vec());
        let before = found[place].replace(Entry { user_key, trailer, value });
        assert!(before.is_none(), "each key is returned once");
    };
    table.get_many_with(&asked, sequence, CacheUse::Fill, &mut counts, take).unwrap();
    for (key, found) in keys.iter().zip(&found) {
        assert_eq!(found.as_ref(), model_get(entries, key, sequence));
    }
    assert!(counts.data_block_requests <= keys.len() as u64, "{counts:?}");
}

/// Compares the cursor with entry `place` of the list.
fn check_place(cursor: &mut TableCursor, entries: &[Entry], place: Option<usize>) {
    assert_eq!(cursor.key(), place.map(|at| entries[at].key()));
    let Some(at) = place else { return };
    assert_eq!(cursor.value(), entries[at].value);
    assert_eq!(cursor.value_ref(), entries[at].value);
    if cursor.is_newest_version() {
        assert!(at == 0 || entries[at - 1].user_key != entries[at].user_key);
    }
}

fn slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    bound.as_ref().map(AsRef::as_ref)
}

/// Returns `place`, unless that entry is beyond the bound in the direction of the move.
fn bounded(
    entries: &[Entry],
    place: Option<usize>,
    up: bool,
    options: &CursorOptions,
) -> Option<usize> {
    let any = Bound::Unbounded;
    let bounds = match up {
        true => (any, slice(&options.end)),
        false => (slice(&options.start), any),
    };
    place.filter(|&at| {
        at < entries.len() && RangeBounds::<[u8]>::contains(&bounds, &*entries[at].user_key)
    })
}

/// A move of a cursor.
#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    Next(u8),
    Prev(u8),
    Seek(Target),
    SeekBefore(Target),
}

#[derive(Debug, Clone)]
enum Target {
    /// The key of an entry, or a target before or after all versions of its user key.
    Entry(Index, i8),
    Key(Vec<u8>, u64),
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        3 => (any::<Index>(), -1..=1_i8).prop_map(|(index, side)| Target::Entry(index, side)),
        1 => (user_key(), 0..2000_u64).prop_map(|(key, sequence)| Target::Key(key, sequence)),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        4 => (1..40_u8).prop_map(Move::Next),
        4 => (1..40_u8).prop_map(Move::Prev),
        3 => target().prop_map(Move::Seek),
        3 => target().prop_map(Move::SeekBefore),
    ];
    vec(one, 1..60)
}

impl Target {
    fn key<'a>(&'a self, entries: &'a [Entry]) -> InternalKey<'a> {
        match self {
            Self::Entry(_, _) if entries.is_empty() => InternalKey::seek(b"", 0),
            Self::Entry(index, side) => {
                let key = index.get(entries).key();
                match side {
                    -1 => InternalKey::seek(key.user_key, SEQUENCE_MAX),
                    0 => key,
                    _ => InternalKey::new(key.user_key, Trailer::OLDEST),
                }
            }
            Self::Key(user_key, sequence) => InternalKey::seek(user_key, *sequence),
        }
    }
}

/// Applies the moves to cursor and list, and compares them after each.
fn check_moves(table: Arc<Table>, entries: &[Entry], moves: &[Move], options: &CursorOptions) {
    let mut cursor = table.cursor(options.clone());
    let mut place = None;
    check_place(&mut cursor, entries, None);
    for one in moves {
        let (to, up) = match one {
            Move::First => (Some(0), cursor.seek_to_first().map(|()| true)),
            Move::Last => (entries.len().checked_sub(1), cursor.seek_to_last().map(|()| false)),
            Move::Next(steps) => {
                for _ in 0..*steps {
                    let Some(at) = place else { break };
                    cursor.next().unwrap();
                    place = bounded(entries, Some(at + 1), true, options);
                    check_place(&mut cursor, entries, place);
                    if let Some(at) = place {
                        let repeats = entries[at - 1].user_key == entries[at].user_key;
                        assert_eq!(cursor.is_older_version(), repeats);
                    }
                }
                continue;
            }
            Move::Prev(steps) => {
                for _ in 0..*steps {
                    let Some(at) = place else { break };
                    cursor.prev().unwrap();
                    place = bounded(entries, at.checked_sub(1), false, options);
                    check_place(&mut cursor, entries, place);
                }
                continue;
            }
            Move::Seek(target) => {
                let target = target.key(entries);
                let at = entries.partition_point(|entry| entry.key() < target);
                (Some(at), seek_advised(&mut cursor, target).map(|()| true))
            }
            Move::SeekBefore(target) => {
                let target = target.key(entries);
                let at = entries.partition_point(|entry| entry.key() < target);
                cursor.advise_seek_before(target);
                (at.checked_sub(1), cursor.seek_before(target).map(|()| false))
            }
        };
        place = bounded(entries, to, up.unwrap(), options);
        check_place(&mut cursor, entries, place);
    }
}

/// Scans from one bound to the other, both ways.
fn check_bounded_scan(table: &Arc<Table>, entries: &[Entry], options: &CursorOptions) {
    let bounds = (slice(&options.start), slice(&options.end));
    let inside = |entry: &&Entry| RangeBounds::<[u8]>::contains(&bounds, &*entry.user_key);
    let wanted: Vec<_> = entries.iter().filter(inside).map(Entry::key).collect();
    let (Bound::Included(start), Bound::Included(end)) = bounds else { return };
    let mut cursor = Arc::clone(table).cursor(options.clone());
    cursor.seek(InternalKey::seek(start, SEQUENCE_MAX)).unwrap();
    for key in &wanted {
        assert_eq!(cursor.key(), Some(*key));
        cursor.next().unwrap();
    }
    assert_eq!(cursor.key(), None);
    cursor.seek_before(InternalKey::new(end, Trailer::OLDEST)).unwrap();
    for key in wanted.iter().rev() {
        assert_eq!(cursor.key(), Some(*key));
        cursor.prev().unwrap();
    }
    assert_eq!(cursor.key(), None);
}

fn check_summary(built: &Built, table: &Table, entries: &[Entry]) {
    let summary = &built.summary;
    assert_eq!(summary.bytes, built.bytes.len() as u64);
    assert_eq!(summary.checksum, xxhash_rust::xxh3::xxh3_64(&built.bytes));
    assert_eq!(summary.entries, entries.len() as u64);
    let tombstones = entries.iter().filter(|entry| entry.trailer.kind() == Kind::Tombstone).count();
    assert_eq!(summary.tombstones, tombstones as u64);
    let user_key = |entry: Option<&Entry>| entry.map_or(vec![], |entry| entry.user_key.clone());
    assert_eq!(summary.bounds.smallest.to_vec(), user_key(entries.first()));
    assert_eq!(summary.bounds.largest.to_vec(), user_key(entries.last()));
    let sequences = || entries.iter().map(|entry| entry.trailer.sequence());
    assert_eq!(summary.smallest_sequence, sequences().min().unwrap_or(0));
    assert_eq!(summary.largest_sequence, sequences().max().unwrap_or(0));
    let properties = table.properties();
    assert_eq!(properties.entries(), summary.entries);
    assert_eq!(properties.tombstones(), summary.tombstones);
    assert_eq!(properties.bounds, summary.bounds);
    let user_keys: BTreeSet<_> = entries.iter().map(|entry| &entry.user_key).collect();
    assert_eq!(properties.user_keys, user_keys.len() as u64);
    let filter = built.filter();
    if let Some(filter) = filter.resident() {
        assert_eq!(filter.key_count(), properties.user_keys);
    }
    assert_eq!(filter.resident().is_some(), summary.filter.is_some());
}

proptest! {
    #![proptest_config(proptest_config(96))]

    #[test]
    fn table_agrees_with_a_sorted_list(
        entries in entries(),
        options in options(),
        absent in vec((user_key(), 0..2000_u64), 20),
        moves in moves(),
        bounds in (user_key(), user_key()),
        read_ahead_bytes_max in 0..10_000_usize,
    ) {
        let built = build(&entries, options);
        let table = built.open();
        let filter = built.filter();
        check_summary(&built, &table, &entries);
        for versions in entries.chunk_by(|a, b| a.user_key == b.user_key) {
            let middle = versions[versions.len() / 2].trailer.sequence();
            for sequence in [SEQUENCE_MAX, middle] {
                check_versions(&table, &entries, &versions[0].user_key, sequence);
            }
        }
        for entry in &entries {
            let sequence = entry.trailer.sequence();
            for sequence in [sequence - 1, sequence, sequence + 1, SEQUENCE_MAX] {
                check_get(&table, &entries, &entry.user_key, sequence);
            }
            let hash = key_hash(&entry.user_key, IDENTITY.hash_seed);
            prop_assert!(filter.may_contain_hash(hash));
        }
        for (user_key, sequence) in &absent {
            check_get(&table, &entries, user_key, *sequence);
        }
        for sequence in [SEQUENCE_MAX, 500, 20] {
            check_get_many(&table, &entries, &absent, sequence);
        }
        check_moves(Arc::clone(&table), &entries, &moves, &CacheUse::Fill.into());
        let (start, end) = (bounds.0.as_slice().min(&bounds.1), bounds.0.as_slice().max(&bounds.1));
        let bound = |key: &[u8]| Bound::Included(Bytes::copy_from_slice(key));
        let options = CursorOptions {
            cache_use: CacheUse::Bypass,
            read_ahead_bytes_max,
            reads_all: read_ahead_bytes_max % 2 == 0,
            start: bound(start),
            end: bound(end),
            ..CursorOptions::default()
        };
        check_bounded_scan(&table, &entries, &options);
        check_moves(table, &entries, &moves, &options);
    }
}
