//! An open table.

mod mapped_blocks;

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use bytes::Bytes;
use sievedb_format::{
    Corruption, FileHeader, FileKind, InternalKey, SEQUENCE_MAX, SequenceNumber, TableBounds,
    Trailer, file_header::HEADER_BYTES, range_tombstone::RangeTombstones,
};

use crate::{
    block::{Block, BlockCursor, BlockHandle, BlockInner, BlockRef, BlockRole, ValueRef},
    block_reader::BlockReader,
    cache::{BlockCache, BlockCounts, BlockObserver, BlockRequest, CacheUse},
    cursor::TableCursor,
    error::ReadError,
    footer::Footer,
    metadata::{ResidentBlocks, TableIdentity},
    options::CursorOptions,
    properties::TableProperties,
    source::TableSource,
    tail::TableTail,
    walk_lengths::WalkLengths,
};

/// Number of the next table that this process opens.
static NEXT_TABLE_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Length of the tail that [`Table::open`] reads at once, in bytes. Holds everything after the
/// filters of most tables.
pub const TAIL_READ_BYTES: usize = 4 << 10;

/// Shared by all tables without range tombstones, of which there may be many.
static NO_RANGE_TOMBSTONES: LazyLock<Arc<RangeTombstones>> = LazyLock::new(Arc::default);

fn shared(list: RangeTombstones) -> Arc<RangeTombstones> {
    if list.is_empty() { Arc::clone(&NO_RANGE_TOMBSTONES) } else { Arc::new(list) }
}

/// An open table. Keeps its metadata and top index in memory, verified.
#[derive(Debug)]
pub struct Table {
    reader: BlockReader,
    /// Distinguishes its cached blocks from those of all tables opened before.
    number: u64,
    properties: TableProperties,
    top_index: Block,
    range_tombstones: Arc<RangeTombstones>,
    walk_lengths: WalkLengths,
    /// Sequence number of every entry of an ingested table; 0 to use the stored ones.
    global_sequence: AtomicU64,
    /// See [`evict_when_dropped`](Self::evict_when_dropped).
    evicts: AtomicBool,
    /// Dropped last: slots of the top index share its blocks.
    cache: Arc<BlockCache>,
}

impl Table {
    /// Opens the table in `source`.
    ///
    /// `expected_bytes` is the length of the file according to the manifest. Reads and verifies
    /// header, footer, properties, top index and range tombstones: in two reads, if all but the
    /// header are in the last [`TAIL_READ_BYTES`]. The caller loads the filter: see
    /// [`FilterState`](crate::FilterState).
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails, or is not an intact table with this identity and length.
    pub fn open(
        source: Arc<dyn TableSource>,
        identity: TableIdentity,
        expected_bytes: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        check_length(&*source, expected_bytes)?;
        let tail = TableTail::read(source, TAIL_READ_BYTES)?;
        Self::open_with_tail(&Arc::new(tail), identity, expected_bytes, cache)
    }

    /// Opens a table of any store, or of none, with the identity in the file.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the source fails, or is not an intact table.
    pub fn open_foreign(
        source: Arc<dyn TableSource>,
        cache: Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        let bytes = source.len();
        let tail = Arc::new(TableTail::read(source, TAIL_READ_BYTES)?);
        let Footer { store_id, file_id, salt, .. } = Footer::read(&*tail)?;
        // Filters are not read.
        let identity = TableIdentity { store_id, file_id, salt, hash_seed: 0 };
        Self::open_with_tail(&tail, identity, bytes, cache)
    }

    /// Opens a table whose tail is in memory. Otherwise as [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with_tail(
        tail: &Arc<TableTail>,
        identity: TableIdentity,
        expected_bytes: u64,
        cache: Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        check_length(&**tail, expected_bytes)?;
        let footer = Footer::read(&**tail)?;
        footer.check(&identity).map_err(ReadError::corrupt(footer.list_offset))?;
        let header = tail.read_at(0, HEADER_BYTES)?;
        FileHeader::new(FileKind::Table, identity.store_id, identity.file_id)
            .check(&header)
            .map_err(ReadError::corrupt(0))?;
        let source = Arc::clone(tail) as Arc<dyn TableSource>;
        let ResidentBlocks { mut reader, mut properties, top_index, range_tombstones } =
            ResidentBlocks::read(source, &footer)?;
        // Only repair needs it.
        properties.origin = None;
        reader.set_source(Arc::clone(tail.source()));
        Ok(Self {
            reader,
            number: NEXT_TABLE_NUMBER.fetch_add(1, Ordering::Relaxed),
            properties,
            top_index,
            range_tombstones: shared(range_tombstones),
            walk_lengths: WalkLengths::default(),
            global_sequence: AtomicU64::new(0),
            evicts: AtomicBool::new(false),
            cache,
        })
    }

    /// Sets the sequence number of every entry to `sequence`, instead of the stored one. Must be
    /// called before any block is read.
    ///
    /// Afterwards a block whose stored numbers differ from each other is an error.
    pub fn set_global_sequence(&self, sequence: SequenceNumber) {
        debug_assert!((1..=SEQUENCE_MAX).contains(&sequence), "{sequence} is no sequence number");
        self.global_sequence.store(sequence, Ordering::Relaxed);
    }

    /// Returns the properties of the table, without the origin.
    #[must_use]
    pub fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// Returns the file of the table.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn TableSource> {
        self.reader.source()
    }

    /// Replaces equal bounds by a clone of `bounds`, which shares their memory.
    pub fn share_bounds(&mut self, bounds: &TableBounds) {
        if self.properties.bounds == *bounds {
            self.properties.bounds = bounds.clone();
        }
    }

    /// Returns the range tombstones.
    #[must_use]
    pub fn range_tombstones(&self) -> &Arc<RangeTombstones> {
        &self.range_tombstones
    }

    /// Returns the memory of the open table, in bytes: top index, properties, range tombstones and
    /// compression dictionary. Excludes cached blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.top_index.memory_bytes()
            + self.properties.memory_bytes()
            + self.range_tombstones.memory_bytes()
            + self.reader.dictionary_memory_bytes()
    }

    /// Estimates the share of the data between two user keys, from 0 to 1. An empty `end` has no
    /// upper bound.
    ///
    /// Reads nothing. The estimate is exact to an entry of the top index at each end, and never too
    /// large.
    #[must_use]
    pub fn share_between(&self, start: &[u8], end: &[u8]) -> f64 {
        let entries = self.top_index.entries();
        let position = |key| {
            let target = InternalKey::seek(key, SEQUENCE_MAX);
            self.top_index.position(target).unwrap_or(entries)
        };
        let is_whole = *start <= *self.properties.bounds.smallest;
        let first = if is_whole { 0 } else { (position(start) + 1).min(entries) };
        let behind = if end.is_empty() { entries } else { position(end) };
        behind.saturating_sub(first) as f64 / entries.max(1) as f64
    }

    /// Cuts the table into pieces of at least `bytes_min` bytes, except the last one, at entries of
    /// the top index. Returns a user key at or after all keys of each piece, and its bytes.
    ///
    /// Reads nothing. The keys ascend, and two may be equal.
    #[must_use]
    pub fn pieces(&self, bytes_min: u64) -> Vec<(Vec<u8>, u64)> {
        let (mut pieces, mut start) = (Vec::new(), 0);
        let mut entry = BlockCursor::new(self.top_index.clone());
        entry.seek_to_first();
        for left in (0..self.top_index.entries()).rev() {
            let (Some(key), Some(handle)) = (entry.key(), entry.handle()) else { break };
            // A partition is after its data blocks.
            let end = handle.range().end;
            let bytes = end.saturating_sub(start);
            if bytes >= bytes_min || left == 0 {
                pieces.push((key.user_key.to_vec(), bytes));
                start = end;
            }
            entry.next();
        }
        pieces
    }

    /// Returns the newest version of `user_key` at or below `sequence`, with its value.
    ///
    /// Probes no filter and applies no range tombstones; the caller does both. The value keeps its
    /// block in memory. Costs a search in the top index, in a partition if there are two levels,
    /// and in one data block. An absent key allocates nothing if the blocks are cached.
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

    /// Passes the newest version of the target's user key at or after `target` to `take`, and
    /// returns its result. Writes no reference count for the value.
    ///
    /// [`InternalKey::seek`] is the target for the newest version visible to a reader, and
    /// [`Trailer::older`] leads to the next older version. Each costs as much as
    /// [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_with<T>(
        &self,
        target: InternalKey<'_>,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
        take: impl FnOnce(Trailer, ValueRef<'_>) -> T,
    ) -> Result<Option<T>, ReadError> {
        let top = self.top_index.shared();
        let Some(at) = top.position(target) else { return Ok(None) };
        if !self.has_partitions() {
            let block = self.child(top, at, BlockRole::Data, cache_use, observer)?;
            return Ok(block.get_with(target, take));
        }
        let partition = self.child(top, at, BlockRole::Index, cache_use, observer)?;
        let Some(at) = partition.position(target) else { return Ok(None) };
        let block = self.child(partition.shared(), at, BlockRole::Data, cache_use, observer)?;
        Ok(block.get_with(target, take))
    }

    /// Returns the bytes of the table before `target`, at the precision of a data block. Reads a
    /// partition if the index has two levels.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the partition cannot be read or is damaged.
    pub fn bytes_before(&self, target: InternalKey<'_>) -> Result<u64, ReadError> {
        let top = self.top_index.shared();
        let Some(at) = top.position(target) else { return Ok(self.source().len()) };
        if !self.has_partitions() {
            return Ok(top.handle_at(at).offset);
        }
        let mut counts = BlockCounts::default();
        let partition = self.child(top, at, BlockRole::Index, CacheUse::Fill, &mut counts)?;
        // A partition is after its data blocks.
        let found = partition.position(target);
        Ok(found.map_or(top.handle_at(at).offset, |at| partition.handle_at(at).offset))
    }

    /// Returns an unpositioned cursor over the point entries.
    #[must_use]
    pub fn cursor(self: Arc<Self>, options: impl Into<CursorOptions>) -> TableCursor {
        TableCursor::new(self, options.into())
    }

    /// Returns `true` if the index has two levels.
    pub(crate) fn has_partitions(&self) -> bool {
        self.properties.index_levels == 2
    }

    pub(crate) fn reader(&self) -> &BlockReader {
        &self.reader
    }

    pub(crate) fn top_index(&self) -> &Block {
        &self.top_index
    }

    pub(crate) fn walk_lengths(&self) -> &WalkLengths {
        &self.walk_lengths
    }

    /// Returns the number of the table in this process, the first part of its cache keys.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the block in slot `at` of `index`, if the slot is full.
    #[inline]
    pub(crate) fn child_in_slot(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
    ) -> Option<BlockRef> {
        // A damaged index may lead to a block that was checked for the other role.
        let block = index.child(at).filter(|block| block.role() == role)?;
        if cache_use == CacheUse::Fill {
            self.cache.note_use(self.number, &block);
        }
        Some(block)
    }

    /// Returns the child of entry `at` of `index`: from its slot, the cache, or the source.
    #[inline]
    pub(crate) fn child(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
    ) -> Result<BlockRef, ReadError> {
        let Some(block) = self.child_in_slot(index, at, role, cache_use) else {
            return self.fill_child(index, at, role, cache_use, observer);
        };
        let BlockHandle { offset, bytes } = block.handle();
        observer.on_request(BlockRequest { offset, bytes, is_index: role == BlockRole::Index });
        Ok(block)
    }

    #[cold]
    fn fill_child(
        &self,
        index: &Arc<BlockInner>,
        at: usize,
        role: BlockRole,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
    ) -> Result<BlockRef, ReadError> {
        let handle = index.handle_at(at);
        let block = match self.request(handle, role, cache_use, observer) {
            Some(block) => block,
            None => self.read_block(handle, role, cache_use, observer)?,
        };
        if cache_use == CacheUse::Fill {
            block.place_in(index, at);
        }
        Ok(BlockRef::Owned(block))
    }

    /// Requests a block from the cache.
    #[inline]
    pub(crate) fn request(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
    ) -> Option<Block> {
        let BlockHandle { offset, bytes } = handle;
        observer.on_request(BlockRequest { offset, bytes, is_index: role == BlockRole::Index });
        self.cached(handle, role, cache_use)
    }

    /// Returns a block from the cache, without a report to an observer.
    pub(crate) fn cached(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
    ) -> Option<Block> {
        let block = self.cache.get(self.number, handle.offset, cache_use);
        // A damaged index may lead to a block that was checked for the other role.
        block.filter(|block| block.role() == role)
    }

    /// Charges `bytes` as pinned while only a caller holds them. Background work charges its own
    /// buffers.
    pub(crate) fn counted(&self, bytes: Bytes, cache_use: CacheUse) -> Bytes {
        match cache_use {
            CacheUse::Fill | CacheUse::Bypass => self.cache.counted(bytes),
            CacheUse::Background => bytes,
        }
    }

    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn remove_cached(&self, handle: BlockHandle) -> Option<Block> {
        self.cache.remove(self.number, handle.offset)
    }

    /// Reads a block from the source and caches it.
    #[cold]
    pub(crate) fn read_block(
        &self,
        handle: BlockHandle,
        role: BlockRole,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
    ) -> Result<Block, ReadError> {
        let stored = self.reader.read_bytes(handle.range())?;
        self.admit_block(handle, stored, false, role, cache_use, observer)
    }

    /// Decodes the stored bytes of a block and caches it. If `is_part`, they belong to a longer
    /// buffer, which the block must not keep in memory.
    pub(crate) fn admit_block(
        &self,
        handle: BlockHandle,
        stored: Bytes,
        is_part: bool,
        role: BlockRole,
        cache_use: CacheUse,
        observer: &mut impl BlockObserver,
    ) -> Result<Block, ReadError> {
        debug_assert_eq!(stored.len() as u64, handle.bytes);
        let stored_range = stored.as_ptr_range();
        let content = self.reader.content_of(handle, stored)?;
        let is_stored = stored_range.contains(&content.as_ptr());
        let is_mapped = is_stored && self.reader.source().is_mapped();
        let content = if cache_use == CacheUse::Fill
            && !is_mapped
            && let Some(in_pages) = self.cache.copy_in_pages(&content, role)
        {
            drop(content); // Before `Block::decode` allocates: reduces fragmentation.
            in_pages
        } else if is_stored && is_part {
            self.counted(Bytes::copy_from_slice(&content), cache_use)
        } else {
            self.counted(content, cache_use)
        };
        let decoded = match (role, self.global_sequence.load(Ordering::Relaxed)) {
            (BlockRole::Index, _) | (_, 0) => Block::decode(content, role, handle),
            (BlockRole::Data, sequence) => Block::decode_ingested(content, handle, sequence),
        };
        let block = decoded.map_err(ReadError::corrupt(handle.offset))?;
        debug_assert_eq!((block.role(), block.handle()), (role, handle));
        observer.on_read(handle.bytes);
        if cache_use == CacheUse::Fill {
            self.cache.insert(self.number, handle.offset, block.clone());
        }
        Ok(block)
    }
}

fn check_length(source: &dyn TableSource, expected: u64) -> Result<(), ReadError> {
    let found = source.len();
    if found == expected {
        return Ok(());
    }
    let what = "length of the table";
    let source = Corruption::Mismatch { what, expected, found };
    Err(ReadError::Corrupt { offset: found.min(expected), source })
}
