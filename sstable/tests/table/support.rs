//! Tables for tests, and the model they are compared with.

use std::sync::Arc;

use bytes::Bytes;
use proptest::test_runner::{Config, RngSeed};
use sievedb_filter::FilterArena;
use sievedb_format::{Annotation, InternalKey, Kind, RangeTombstone, SequenceNumber, Trailer};
use sievedb_sstable::{
    self as sstable, BlockCache, FilterHandle, FilterState, PrefixExtractor, ReadError, Table,
    TableCursor, TableIdentity, TableOptions, TableOrigin, TableSource, TableSummary, TableWriter,
};

pub(crate) const IDENTITY: TableIdentity = TableIdentity {
    store_id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
    file_id: 12,
    salt: 0x5a17_5a17_5a17_5a17,
    hash_seed: 99,
};

/// Returns all parts of the description of a table.
pub(crate) fn describe(source: &Arc<dyn TableSource>) -> Annotation {
    Annotation::of_parts(|next| sstable::describe(source, next)).1
}

/// An entry of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) user_key: Vec<u8>,
    pub(crate) trailer: Trailer,
    pub(crate) value: Vec<u8>,
}

impl Entry {
    pub(crate) fn put(user_key: &[u8], sequence: SequenceNumber, value: &[u8]) -> Self {
        let trailer = Trailer::new(sequence, Kind::Put);
        Self { user_key: user_key.to_vec(), trailer, value: value.to_vec() }
    }

    pub(crate) fn tombstone(user_key: &[u8], sequence: SequenceNumber) -> Self {
        let trailer = Trailer::new(sequence, Kind::Tombstone);
        Self { user_key: user_key.to_vec(), trailer, value: Vec::new() }
    }

    pub(crate) fn key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.trailer)
    }
}

/// A finished table in memory.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) summary: TableSummary,
    pub(crate) identity: TableIdentity,
}

pub(crate) fn build(entries: &[Entry], options: TableOptions) -> Built {
    build_as(IDENTITY, entries, &[], options)
}

pub(crate) fn build_as(
    identity: TableIdentity,
    entries: &[Entry],
    tombstones: &[RangeTombstone],
    options: TableOptions,
) -> Built {
    build_with(identity, entries, tombstones, options, None)
}

pub(crate) fn build_with(
    identity: TableIdentity,
    entries: &[Entry],
    tombstones: &[RangeTombstone],
    options: TableOptions,
    origin: Option<TableOrigin>,
) -> Built {
    let mut writer = TableWriter::new(Vec::new(), identity, options).unwrap();
    if let Some(origin) = origin {
        writer.set_origin(origin);
    }
    for entry in entries {
        writer.add(entry.key(), &entry.value).unwrap();
    }
    for tombstone in tombstones {
        writer.add_range_tombstone(tombstone.clone()).unwrap();
    }
    let (bytes, summary) = writer.finish().unwrap();
    Built { bytes, summary, identity }
}

fn load(bytes: &[u8], identity: &TableIdentity, handle: Option<FilterHandle>) -> FilterState {
    let (source, heap) = (Bytes::copy_from_slice(bytes), FilterArena::heap());
    handle.map_or(FilterState::None, |handle| {
        FilterState::load(&source, identity, None, handle, &heap)
    })
}

impl Built {
    /// Opens `bytes` with the identity and length of this table.
    pub(crate) fn open_bytes(&self, bytes: Vec<u8>, cache_bytes: u64) -> Result<Table, ReadError> {
        let source: Arc<dyn TableSource> = Arc::new(Bytes::from(bytes));
        let cache = Arc::new(BlockCache::new(cache_bytes));
        Table::open(source, self.identity, self.summary.bytes, cache)
    }

    /// Loads the point filter of this table from `bytes`.
    pub(crate) fn filter_in(&self, bytes: &[u8]) -> FilterState {
        load(bytes, &self.identity, self.summary.filter)
    }

    /// Loads the prefix filter of this table for `extractor` from `bytes`.
    pub(crate) fn prefix_filter_in(
        &self,
        bytes: &[u8],
        extractor: &PrefixExtractor,
    ) -> FilterState {
        let hash_seed = extractor.hash_seed(self.identity.hash_seed);
        let identity = TableIdentity { hash_seed, ..self.identity };
        load(bytes, &identity, self.summary.prefix_filter)
    }

    pub(crate) fn filter(&self) -> FilterState {
        self.filter_in(&self.bytes)
    }

    pub(crate) fn open(&self) -> Arc<Table> {
        Arc::new(self.open_bytes(self.bytes.clone(), 1 << 20).unwrap())
    }
}

/// Returns the expected result of `get`.
pub(crate) fn model_get<'a>(
    entries: &'a [Entry],
    user_key: &[u8],
    sequence: SequenceNumber,
) -> Option<&'a Entry> {
    let target = InternalKey::seek(user_key, sequence);
    let at = entries.partition_point(|entry| entry.key() < target);
    entries.get(at).filter(|entry| entry.user_key == user_key)
}

/// Seeks with advice before each step.
pub(crate) fn seek_advised(
    cursor: &mut TableCursor,
    target: InternalKey<'_>,
) -> Result<(), ReadError> {
    (0..TableCursor::SEEK_STEPS).try_for_each(|step| {
        cursor.advise_seek_step(step);
        cursor.seek_step(step, target)
    })
}

/// Returns a configuration with the seed `SIEVE_SEED`, which it prints.
pub(crate) fn proptest_config(cases: u32) -> Config {
    let seed = std::env::var("SIEVE_SEED").map_or(42, |seed| seed.parse().unwrap());
    eprintln!("SIEVE_SEED={seed}");
    let rng_seed = RngSeed::Fixed(seed);
    Config { cases, rng_seed, failure_persistence: None, ..Config::default() }
}
