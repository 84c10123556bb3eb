//! An open table.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use sievedb_format::{
    Corruption, FileHeader, FileKind, InternalKey, SequenceNumber, TableBounds, Trailer,
    file_header::HEADER_BYTES,
    range_tombstone::{RangeTombstoneSource, RangeTombstones},
};

use crate::{
    block::{Block, BlockInner, BlockRole, HeldBlock, ValueRef},
    block_reader::BlockReader,
    cache::{BlockCache, BlockCounts, BlockObserver, BlockRequest, CacheUse},
    contents::Contents,
    cursor::TableCursor,
    cursor_options::CursorOptions,
    error::ReadError,
    footer::Footer,
    handle::BlockHandle,
    identity::TableIdentity,
    properties::TableProperties,
    source::TableSource,
    tail::TableTail,
    walk_lengths::WalkLengths,
};

/// Numbers the tables that this process opens.
static NEXT_TABLE_NUMBER: AtomicU64 = AtomicU64::new(0);

/// An open table: everything that a lookup needs but the blocks is in memory and was verified.
#[derive(Debug)]
pub struct Table {
    blocks: BlockReader,
    /// Tells its blocks in the cache from those of every other table, past ones included.
    number: u64,
    properties: TableProperties,
    top_index: Block,
    range_tombstones: RangeTombstones,
    walk_lengths: WalkLengths,
    /// Dropped last: slots of the top index have some of its blocks.
    cache: Arc<BlockCache>,
}

impl Table {
    /// Opens the table in `source`.
    ///
    /// `expected_bytes` is what the manifest says. Reads and verifies header, footer, properties,
    /// top index and range tombstones: in two reads if those but the header lie in the last
    /// [`END_BYTES`]. Its filter is the caller's to load and to keep: see
    /// [`FilterState`](crate::FilterState).
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails or the table is not the one that the manifest means.
    pub fn open(
        source: Arc<dyn TableSource>,
        identity: TableIdentity,
        expected_bytes: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        check_length(&*source, expected_bytes)?;
        let end = TableTail::read(source, END_BYTES)?;
        Self::open_with_tail(&Arc::new(end), identity, expected_bytes, cache)
    }

    /// As [`open`](Self::open), of a table whose end was read already.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_tail(
        end: &Arc<TableTail>,
        identity: TableIdentity,
        expected_bytes: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        check_length(&**end, expected_bytes)?;
        let footer = Footer::read(&**end)?;
        footer.check(&identity).map_err(ReadError::corrupt(footer.list_offset))?;
        check_header(&**end, &identity)?;
        let source = Arc::clone(end) as Arc<dyn TableSource>;
        let Contents { mut blocks, mut properties, top_index, range_tombstones } =
            Contents::read(source, &footer)?;
        // No reader needs it.
        properties.origin = None;
        blocks.set_source(Arc::clone(end.source()));
        Ok(Self {
            blocks,
            number: NEXT_TABLE_NUMBER.fetch_add(1, Ordering::Relaxed),
            properties,
            top_index,
            range_tombstones,
            walk_lengths: WalkLengths::default(),
            cache,
        })
    }

    /// What the table says of itself.
    #[must_use]
    pub fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Returns the file of the table.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn TableSource> {
        self.blocks.shared_source()
    }

    /// Shares the memory of the bounds with `bounds`, if they are equal.
    pub fn share_bounds(&mut self, bounds: &TableBounds) {
        if self.properties.bounds == *bounds {
            self.properties.bounds = bounds.clone();
        }
    }

    /// The range tombstones.
    #[must_use]
    pub fn range_tombstones(&self) -> &dyn RangeTombstoneSource {
        &self.range_tombstones
    }

    /// Bytes of memory that the table keeps as long as it is open, apart from cached blocks: top
    /// index, properties, range tombstones and compression dictionary.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.top_index.memory_bytes()
            + self.properties.memory_bytes()
            + self.range_tombstones.memory_bytes()
            + self.blocks.dictionary_memory_bytes()
    }

    /// The newest version of `user_key` at or below `sequence`, with its value.
    ///
    /// Asks no filter: whoever has many tables asks all their filters first. Range
    /// tombstones are not applied either. The value shares the memory of its block, and a miss
    /// allocates nothing if the block is cached. Costs a search in the top index, in a partition
    /// if there are two levels, and in one data block.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if a block cannot be read or is damaged.
    pub fn get(
        &self,
        user_key: &[u8],
        sequence: SequenceNumber,
        counts: &mut BlockCounts,
    ) -> Result<Option<(Trailer, Bytes)>, ReadError> {
        let target = InternalKey::seek(user_key, sequence);
        self.get_with(target, CacheUse::Fill, counts, |trailer, value| (trailer, value.to_bytes()))
    }

    /// Returns what `take` makes of the newest version of the target's user key at or behind
    /// `target`. Writes no reference count for the value.
    ///
    /// Finds any version: [`InternalKey::seek`] is the target for the newest one that a reader
    /// sees, and [`Trailer::older`] of a version leads to the next older one. Costs the same as
    /// [`get`](Self::get) for each.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
        take: impl FnOnce(Trailer, ValueRef<'_>) -> T,
    ) -> Result<Option<T>, ReadError> {
        let Some(at) = self.top_index.position(target) else { return Ok(None) };
        if !self.has_partitions() {
            let block =
                self.below(self.top_index.shared(), at, BlockRole::Data, cache_use, blocks)?;
            return Ok(block.get_with(target, take));
        }
        let partition =
            self.below(self.top_index.shared(), at, BlockRole::Index, cache_use, blocks)?;
        let Some(at) = partition.position(target) else { return Ok(None) };
        let block = self.below(partition.shared(), at, BlockRole::Data, cache_use, blocks)?;
        Ok(block.get_with(target, take))
    }

    /// A cursor over the point entries, unpositioned.
    #[must_use]
    pub fn cursor(self: Arc<Self>, options: impl Into<CursorOptions>) -> TableCursor {
        TableCursor::new(self, options.into())
    }

    /// Whether the top index leads to partitions.
    pub(crate) fn has_partitions(&self) -> bool {
        self.properties.index_levels == 2
    }

    /// Reads its blocks past the cache.
    pub(crate) fn blocks(&self) -> &BlockReader {
        &self.blocks
    }

    /// The resident part of the index.
    pub(crate) fn top_index(&self) -> &Block {
        &self.top_index
    }

    /// How far the last scans went.
    pub(crate) fn walk_lengths(&self) -> &WalkLengths {
        &self.walk_lengths
    }

    /// The block below entry `at` of `index`, if it is in the slot there.
    #[inline]
    pub(crate) fn at_hand(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
    ) -> Option<HeldBlock> {
        // A damaged index could lead to a block that was checked as something else.
        let block = index.below(at).filter(|block| block.role() == role)?;
        if cache_use == CacheUse::Fill {
            self.cache.note_use(self.number, &block);
        }
        Some(block)
    }

    /// The block below entry `at` of `index`: from the slot there, from the cache, or from the
    /// source.
    #[inline]
    pub(crate) fn below(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Result<HeldBlock, ReadError> {
        let Some(block) = self.at_hand(index, at, role, cache_use) else {
            return self.fill_below(index, at, role, cache_use, blocks);
        };
        let BlockHandle { offset, bytes } = block.handle();
        blocks.on_request(BlockRequest { offset, bytes, is_index: role == BlockRole::Index });
        Ok(block)
    }

    /// As [`below`](Self::below), of a block that is not in its slot.
    #[cold]
    fn fill_below(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Result<HeldBlock, ReadError> {
        let block = self.block(index.handle_at(at), role, cache_use, blocks)?;
        if cache_use == CacheUse::Fill {
            block.place_in(index, at);
        }
        Ok(HeldBlock::Own(block))
    }

    /// A block, from the cache or the source.
    #[inline]
    pub(crate) fn block(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Result<Block, ReadError> {
        match self.request(handle, role, cache_use, blocks) {
            Some(block) => Ok(block),
            None => self.read_block(handle, role, cache_use, blocks),
        }
    }

    /// Asks the cache for a block.
    #[inline]
    pub(crate) fn request(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Option<Block> {
        let BlockHandle { offset, bytes } = handle;
        blocks.on_request(BlockRequest { offset, bytes, is_index: role == BlockRole::Index });
        let block = self.cache.get(self.number, handle.offset, cache_use);
        // A damaged index could lead to a block that was checked as something else.
        block.filter(|block| block.role() == role)
    }

    /// The block at this place if it is in the cache.
    pub(crate) fn cached(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
    ) -> Option<Block> {
        let block = self.cache.get(self.number, handle.offset, cache_use);
        // A damaged index could lead to a block that was checked as something else.
        block.filter(|block| block.role() == role)
    }

    /// What was read, counted as pinned while only a caller has it; background work accounts for
    /// its own.
    pub(crate) fn counted(&self, bytes: Bytes, cache_use: CacheUse) -> Bytes {
        match cache_use {
            CacheUse::Fill | CacheUse::Bypass => self.cache.counted(bytes),
            CacheUse::Background => bytes,
        }
    }

    /// Returns the number of the table in this process, under which the cache has its blocks.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Takes the block at this place out of the cache, if it is there.
    pub(crate) fn remove_cached(&self, handle: BlockHandle) -> Option<Block> {
        self.cache.remove(self.number, handle.offset)
    }

    /// Tells the source which blocks are read next, in ascending order.
    pub(crate) fn advise_read(&self, places: &[Range<u64>]) {
        self.blocks.advise_read(places);
    }

    #[cold]
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Result<Block, ReadError> {
        let stored = self.blocks.read_bytes(handle.place())?;
        self.keep_block(handle, stored, false, role, cache_use, blocks)
    }

    /// The block with these stored bytes, which was not in the cache. `is_part` tells that they are
    /// a part of a longer buffer, which the block does not keep.
    pub(crate) fn keep_block(
        &self,
        handle: BlockHandle,
        stored: Bytes,
        is_part: bool,
        role: BlockRole,
        cache_use: CacheUse,
        blocks: &mut impl BlockObserver,
    ) -> Result<Block, ReadError> {
        let place = stored.as_ptr_range();
        let content = self.blocks.content_of(handle, stored)?;
        let is_stored = place.contains(&content.as_ptr());
        let is_in_map = is_stored && self.blocks.source().is_mapped();
        let content = if cache_use == CacheUse::Fill
            && !is_in_map
            && let Some(in_pages) = self.cache.copy_in_pages(&content, role)
        {
            drop(content); // Before the block allocates: its memory is in one piece again.
            in_pages
        } else if is_stored && is_part {
            self.counted(Bytes::copy_from_slice(&content), cache_use)
        } else {
            self.counted(content, cache_use)
        };
        let block =
            Block::decode(content, role, handle).map_err(ReadError::corrupt(handle.offset))?;
        blocks.on_read(handle.bytes);
        if cache_use == CacheUse::Fill {
            self.cache.insert(self.number, handle.offset, block.clone());
        }
        Ok(block)
    }
}

/// What most tables have behind their top index fits in so many bytes, filters apart.
pub const END_BYTES: usize = 4 << 10;

fn check_length(source: &dyn TableSource, expected: u64) -> Result<(), ReadError> {
    let found = source.len();
    if found == expected {
        return Ok(());
    }
    let what = "length of the table";
    let source = Corruption::Mismatch { what, expected, found };
    Err(ReadError::Corrupt { offset: found.min(expected), source })
}

fn check_header(source: &dyn TableSource, identity: &TableIdentity) -> Result<(), ReadError> {
    let TableIdentity { store_id, file_id, .. } = *identity;
    let expected = FileHeader::new(FileKind::Table, store_id, file_id);
    let header = source.read_at(0, HEADER_BYTES)?;
    expected.check(&header).map(drop).map_err(ReadError::corrupt(0))
}

#[cfg(test)]
mod tests {
    use sievedb_format::Kind;

    use super::*;
    use crate::{TableOptions, TableWriter};

    #[test]
    fn a_cached_block_is_not_taken_for_another_kind() {
        let identity = TableIdentity { store_id: 1, file_id: 2, salt: 3, hash_seed: 4 };
        let mut writer = TableWriter::new(Vec::new(), identity, TableOptions::new()).unwrap();
        let key = InternalKey::new(b"key", Trailer::new(5, Kind::Put));
        writer.add(key, b"not the handle of a block").unwrap();
        let (bytes, summary) = writer.finish().unwrap();
        let source = Arc::new(Bytes::from(bytes));
        let cache = Arc::new(BlockCache::new(1 << 20));
        let table = Table::open(source, identity, summary.bytes, cache).unwrap();
        let handle = table.top_index().handle_for(key).unwrap();
        let read = |role| table.block(handle, role, CacheUse::Fill, &mut BlockCounts::default());
        assert!(read(BlockRole::Data).is_ok());
        assert!(matches!(read(BlockRole::Index), Err(ReadError::Corrupt { .. })));
        assert!(read(BlockRole::Data).is_ok());
    }
}
