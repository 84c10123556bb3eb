//! RocksDB.
//!
//! The advice is that of its `OptimizeForPointLookup`, of its header files and of its wiki: Bloom
//! filters of 10 bits per key, a hash index in data blocks, a Bloom filter in the memtable, the
//! hyper clock cache, LZ4.
//!
//! The total is split as the wiki caps the memory by a single limit ("Write Buffer Manager",
//! "Memory usage in RocksDB"): the block cache has all of it. Filters and indexes are blocks of the
//! cache, those of level 0 pinned, and memtables are charged to it. "Setup Options and Basic
//! Tuning" recommends a third of the memory for the cache. It leaves the rest to the page cache,
//! which no total includes here: the whole total is better for RocksDB.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBRawIterator, DataBlockIndexType, Options, ReadOptions, WriteBatch, WriteBufferManager,
    WriteOptions,
};

use super::{Engine, Order, Reader, Tuning, copy_value, counted};
use crate::{
    failure::Result,
    keys::{Entry, Key, Value},
    settings::Settings,
};

/// The column family that every store has.
const FAMILY: &str = "default";

/// As in `OptimizeForPointLookup`: entries per bucket of the hash index in a data block.
const HASH_RATIO: f64 = 0.75;

/// As in `OptimizeForPointLookup`: share of the memtable that its filter takes.
const MEMTABLE_FILTER_RATIO: f64 = 0.02;

/// Memtables have one of so many bytes of the total at most.
const WRITE_BUFFERS_SHARE: u64 = 4;

/// The default size of a write buffer; the wiki advises to budget for two of them.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;

/// An open store.
#[derive(Debug)]
pub(crate) struct RocksDb {
    db: DB,
}

fn advised(settings: &Settings) -> Result<Options> {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(HASH_RATIO);
    let cache = Cache::new_hyper_clock_cache(usize::try_from(settings.total_bytes)?, 0);
    table.set_block_cache(&cache);
    let write_buffer_bytes =
        usize::try_from((settings.total_bytes / WRITE_BUFFERS_SHARE / 2).min(WRITE_BUFFER_BYTES))?;
    let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
        2 * write_buffer_bytes,
        false,
        cache,
    );
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_RATIO);
    options.set_memtable_whole_key_filtering(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_manager(&write_buffers);
    options.set_write_buffer_size(write_buffer_bytes);
    Ok(options)
}

impl Engine for RocksDb {
    type Reader<'a> = RocksDbReader<'a>;

    fn open(path: &Path, tuning: Tuning, settings: &Settings) -> Result<Self> {
        let mut options = match tuning {
            Tuning::Advised => advised(settings)?,
            Tuning::Defaults => Options::default(),
        };
        options.create_if_missing(true);
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        Ok(Self { db: DB::open_cf_descriptors(&options, path, [family])? })
    }

    fn write(&self, entries: &[Entry]) -> Result<()> {
        if let [(key, value)] = entries {
            return Ok(self.db.put(key, value)?);
        }
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.db.write(batch)?)
    }

    fn write_synced(&self, (key, value): &Entry) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(self.db.put_opt(key, value, &options)?)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        if let [key] = keys {
            return Ok(self.db.delete(key)?);
        }
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.delete(key);
        }
        Ok(self.db.write(batch)?)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.flush_wal(true)?)
    }

    fn reader(&self) -> Result<RocksDbReader<'_>> {
        let family = self.db.cf_handle(FAMILY).ok_or("no default column family")?;
        Ok(RocksDbReader { db: &self.db, family, options: ReadOptions::default(), iterator: None })
    }

    fn scan(&self, order: Order, mut visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        // The raw iterator lends its slices; the other one copies them.
        let mut iterator = self.db.raw_iterator();
        match order {
            Order::Ascending => iterator.seek_to_first(),
            Order::Descending => iterator.seek_to_last(),
        }
        while let Some((key, value)) = iterator.item() {
            visit(key, value);
            match order {
                Order::Ascending => iterator.next(),
                Order::Descending => iterator.prev(),
            }
        }
        Ok(iterator.status()?)
    }

    fn shape(&self) -> Result<String> {
        let mut levels = Vec::new();
        for level in 0..7 {
            let name = format!("rocksdb.num-files-at-level{level}");
            let tables = self.db.property_int_value(&name)?.unwrap_or_default();
            if tables > 0 {
                levels.push(format!("L{level} {}", counted(tables, "table")));
            }
        }
        Ok(levels.join(", "))
    }
}

/// Keeps its options, which would otherwise be allocated for each lookup, and an iterator, as its
/// wiki advises, for as long as nothing is written.
pub(crate) struct RocksDbReader<'a> {
    db: &'a DB,
    family: &'a ColumnFamily,
    options: ReadOptions,
    iterator: Option<DBRawIterator<'a>>,
}

impl Reader for RocksDbReader<'_> {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<bool> {
        let found = self.db.get_pinned_opt(key, &self.options)?;
        Ok(found.map(|found| copy_value(&found, value)).is_some())
    }

    fn contains_many(&mut self, keys: &[Key], answers: &mut Vec<bool>) -> Result<()> {
        answers.clear();
        let found = self.db.batched_multi_get_cf_opt(self.family, keys, false, &self.options);
        for found in found {
            answers.push(found?.is_some());
        }
        Ok(())
    }

    fn scan_from(
        &mut self,
        key: &Key,
        entries: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let iterator = self.iterator.get_or_insert_with(|| self.db.raw_iterator());
        iterator.seek(key);
        for _ in 0..entries {
            let Some((key, value)) = iterator.item() else { break };
            visit(key, value);
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    fn let_go(&mut self) {
        self.iterator = None;
    }
}
