//! The writer of a table.

use std::{io, sync::Arc};

use sievedb_filter::{Expected, FilterKind, TableFilter, filter_block};
use sievedb_format::{
    Encode, FileHeader, FileKind, InternalKey, KEY_BYTES_MAX, Kind, TableBounds, Trailer,
    VALUE_BYTES_MAX,
    expiry::split_expiry,
    range_tombstone::{RangeTombstone, RangeTombstones},
};

use crate::{
    block::{BlockBuilder, BlockHandle, stored::Sealer},
    filter_keys::{FilterKeys, PrefixFilter},
    filter_state::{FILTER_ALIGNMENT, FilterHandle, stored_checksum},
    footer::{BlockKind, FIXED_BYTES, Footer, FooterBlock},
    index::IndexBuilder,
    metadata::{TableIdentity, TableSummary},
    options::TableOptions,
    output::Output,
    properties::{FilterProperties, TableOrigin, TableProperties},
    source::TableSink,
    table_expiry::ExpiryCollector,
};

/// Writes a table sequentially.
///
/// Buffers a data block, an index partition, the top index and an output buffer, limited by options
/// or the largest entry. Until the filters are built, each key for a filter takes 8 bytes: distinct
/// user keys, distinct prefixes, and user keys of range filters.
///
/// After an error neither the table nor the writer is usable.
#[derive(Debug)]
pub struct TableWriter<S> {
    out: Output<S>,
    identity: TableIdentity,
    options: TableOptions,
    sealer: Sealer,
    data: BlockBuilder,
    index: IndexBuilder,
    last: Option<Last>,
    filter_keys: FilterKeys,
    range_tombstones: Vec<RangeTombstone>,
    expiry: ExpiryCollector,
    /// Memory of `range_tombstones`, and about their length in the file.
    range_tombstone_bytes: usize,
    properties: TableProperties,
}

/// Key of the last entry.
#[derive(Debug)]
struct Last {
    user_key: Vec<u8>,
    trailer: Trailer,
}

impl Last {
    fn key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.user_key, self.trailer)
    }
}

impl<S: TableSink> TableWriter<S> {
    /// Starts a table at the start of `sink`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if an option is out of range, else those of the sink.
    pub fn new(sink: S, identity: TableIdentity, options: TableOptions) -> io::Result<Self> {
        options.validate().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let TableIdentity { store_id, file_id, salt, .. } = identity;
        let mut out = Output::new(sink, options.write_buffer_bytes);
        out.append(&FileHeader::new(FileKind::Table, store_id, file_id).encode())?;
        Ok(Self {
            out,
            identity,
            sealer: Sealer::new(salt, options.compression),
            data: BlockBuilder::default(),
            index: IndexBuilder::new(options.index_partition_bytes),
            last: None,
            filter_keys: FilterKeys::new(&options, &identity),
            range_tombstones: Vec::new(),
            expiry: ExpiryCollector::default(),
            range_tombstone_bytes: 0,
            properties: TableProperties::new(&options),
            options,
        })
    }

    /// Adds an entry. Entries must be in ascending order.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the entry is not after the last one, key or value are too
    /// long, or the kind is unsupported. Otherwise those of the sink.
    ///
    /// # Panics
    ///
    /// If the trailer is not that of a write; see [`Trailer::kind`].
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> io::Result<()> {
        let kind = key.trailer.kind();
        check(key.user_key.len() <= KEY_BYTES_MAX, "the key is longer than 64 KiB")?;
        check(kind != Kind::RangeTombstone, "add range tombstones with add_range_tombstone")?;
        let (expiry_ms, user_value) = match kind {
            Kind::PutWithExpiry => split_expiry(value).map(|(ms, value)| (Some(ms), value)),
            _ => Ok((None, value)),
        }
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        check(user_value.len() <= VALUE_BYTES_MAX, "the value is longer than 256 MiB")?;
        let is_new_user_key = match &self.last {
            Some(last) => {
                check(last.key() < key, "entries are not in ascending order")?;
                last.user_key != key.user_key
            }
            None => true,
        };
        if !self.data.add_within(key, value, self.options.block_bytes) {
            self.end_data_block(Some(key))?;
            self.data.add(key, value);
        }
        if is_new_user_key {
            self.properties.user_keys += 1;
            self.filter_keys.add(key.user_key);
        }
        self.properties.add_entry(kind, key.trailer.sequence());
        if let Some(expiry_ms) = expiry_ms {
            self.expiry.add(expiry_ms, key.user_key.len(), user_value.len());
        }
        self.properties.key_bytes += key.user_key.len() as u64;
        self.properties.value_bytes += value.len() as u64;
        match &mut self.last {
            Some(last) if is_new_user_key => {
                last.user_key.clear();
                last.user_key.put(key.user_key);
                last.trailer = key.trailer;
            }
            Some(last) => last.trailer = key.trailer,
            None => {
                self.properties.bounds.smallest = key.user_key.into();
                self.last = Some(Last { user_key: key.user_key.to_vec(), trailer: key.trailer });
            }
        }
        debug_assert!(self.properties.user_keys <= self.properties.points());
        debug_assert!(!self.data.is_empty());
        Ok(())
    }

    /// Adds a range tombstone, in any order. Keeps it in memory until the table is finished.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the range is empty or a bound is too long.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> io::Result<()> {
        let check = RangeTombstones::new(vec![tombstone.clone()]);
        check.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.properties.add_entry(Kind::RangeTombstone, tombstone.sequence);
        self.range_tombstone_bytes +=
            size_of::<RangeTombstone>() + tombstone.start.len() + tombstone.end.len();
        self.range_tombstones.push(tombstone);
        Ok(())
    }

    /// Sets the origin of the table. Without it a repair without a manifest loses the table.
    pub fn set_origin(&mut self, origin: TableOrigin) {
        self.properties.origin = Some(Box::new(origin));
    }

    /// Returns the length of the file so far, in bytes, the output buffer included.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.out.offset()
    }

    /// Estimates the length of the file if it were finished now, in bytes. Exact to a few hundred
    /// bytes, except that the open block counts uncompressed.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        let filter_bits = self.filter_keys.filter_bits();
        let pending = self.data.content_bytes_max()
            + self.index.pending_bytes()
            + self.range_tombstone_bytes
            + FIXED_BYTES;
        self.out.offset() + pending as u64 + (filter_bits / 8.0).ceil() as u64
    }

    /// Returns the memory of the writer, in bytes, without that of the filters.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |last| last.user_key.capacity());
        let buffers = self.data.memory_bytes() + self.index.memory_bytes() + last;
        self.out.memory_bytes()
            + self.sealer.memory_bytes()
            + buffers
            + self.range_tombstone_bytes
            + self.properties.memory_bytes()
            + self.expiry.memory_bytes()
    }

    /// Returns the part of [`memory_bytes`](Self::memory_bytes) that grows with the table, in
    /// bytes: the top index and range tombstones.
    #[must_use]
    pub fn growing_memory_bytes(&self) -> usize {
        self.index.top_memory_bytes() + self.range_tombstone_bytes
    }

    /// Returns the number of entries, tombstones and range tombstones included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.properties.entries()
    }

    /// Writes the rest of data and index, then filters, properties and footer. Does not sync the
    /// sink. A table without entries is valid.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn finish(self) -> io::Result<(S, TableSummary)> {
        self.finish_cancellable(&|| false)
    }

    /// Finishes the table unless it is cancelled. Once `is_cancelled` returns `true`, it must
    /// always do so. Otherwise as [`finish`](Self::finish).
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish); [`io::ErrorKind::Interrupted`] soon after `is_cancelled`
    /// returns `true`. The table is then incomplete.
    pub fn finish_cancellable(
        mut self,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<(S, TableSummary)> {
        let check = || match is_cancelled() {
            true => Err(io::Error::from(io::ErrorKind::Interrupted)),
            false => Ok(()),
        };
        check()?;
        if !self.data.is_empty() {
            self.end_data_block(None)?;
        }
        let range_tombstones = RangeTombstones::new(std::mem::take(&mut self.range_tombstones))
            .expect("add_range_tombstone checked each");
        self.complete_properties(&range_tombstones);

        let mut blocks = vec![self.write_index()?];
        let filter = self.write_point_filter(is_cancelled)?;
        check()?;
        let prefix_filter = self.write_prefix_filter(is_cancelled)?;
        check()?;
        let range_filter = self.write_range_filter()?;
        check()?;
        let mut properties = Vec::new();
        self.properties.encode(&mut properties);
        blocks.push(self.write_raw(BlockKind::Properties, &properties)?);
        let filters = [
            (BlockKind::PointFilter, filter),
            (BlockKind::PrefixFilter, prefix_filter),
            (BlockKind::RangeFilter, range_filter),
        ];
        for (kind, handle) in filters {
            if let Some(FilterHandle { offset, bytes, .. }) = handle {
                blocks.push(FooterBlock { kind, offset, bytes });
            }
        }
        if !range_tombstones.is_empty() {
            let mut content = Vec::new();
            range_tombstones.encode(&mut content);
            blocks.push(self.write_raw(BlockKind::RangeTombstones, &content)?);
        }
        if let Some(dictionary) = self.sealer.dictionary() {
            let content = dictionary.to_vec();
            blocks.push(self.write_raw(BlockKind::CompressionDictionary, &content)?);
        }
        let footer = Footer::new(self.identity, self.out.offset(), blocks);
        self.out.append(&footer.encode())?;

        let (sink, bytes, checksum) = self.out.finish()?;
        let properties = self.properties;
        let summary = TableSummary {
            bytes,
            checksum,
            filter,
            prefix_filter,
            range_filter,
            entries: properties.entries(),
            tombstones: properties.tombstones(),
            range_tombstones: properties.range_tombstones(),
            prefix_extractor: properties.prefix_filter.map(|(_, name)| name),
            bounds: properties.bounds,
            smallest_sequence: properties.smallest_sequence,
            largest_sequence: properties.largest_sequence,
            expiry: properties.expiry.clone(),
        };
        Ok((sink, summary))
    }

    /// Writes the open data block. The next one starts with `next`.
    fn end_data_block(&mut self, next: Option<InternalKey<'_>>) -> io::Result<()> {
        let Self { out, sealer, data, index, properties, last, .. } = self;
        debug_assert!(!data.is_empty());
        let content = data.finish();
        properties.data_blocks += 1;
        properties.content_bytes += content.len() as u64;
        properties.content_bytes_max = properties.content_bytes_max.max(content.len() as u64);
        let offset = out.offset();
        let (stored, trailer) = sealer.seal(offset, content);
        let handle = out.append_block(stored, &trailer)?;
        debug_assert_eq!((handle.offset, handle.range().end), (offset, out.offset()));
        data.reset();
        let last = last.as_ref().expect("the block is not empty").key();
        index.add(last, next, handle, |partition| {
            write_index_block(out, sealer, properties, partition)
        })
    }

    /// Writes the last partition and the top index.
    fn write_index(&mut self) -> io::Result<FooterBlock> {
        let Self { out, sealer, index, properties, .. } = self;
        let top = index.finish(|block| write_index_block(out, sealer, properties, block))?;
        properties.index_partitions = index.partitions();
        properties.index_levels = if index.partitions() == 0 { 1 } else { 2 };
        Ok(FooterBlock { kind: BlockKind::DataIndex, offset: top.offset, bytes: top.bytes })
    }

    fn write_point_filter(
        &mut self,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Option<FilterHandle>> {
        let Some(filter) = self.filter_keys.build_points(is_cancelled) else { return Ok(None) };
        self.properties.filter = Some(FilterProperties::of(&filter));
        self.write_filter(&filter, self.identity.hash_seed).map(Some)
    }

    fn write_prefix_filter(
        &mut self,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Option<FilterHandle>> {
        let Some(built) = self.filter_keys.build_prefixes(is_cancelled) else { return Ok(None) };
        let PrefixFilter { filter, hash_seed, extractor } = built;
        self.properties.prefix_filter = Some((FilterProperties::of(&filter), extractor));
        self.write_filter(&filter, hash_seed).map(Some)
    }

    fn write_range_filter(&mut self) -> io::Result<Option<FilterHandle>> {
        let TableBounds { smallest, largest, .. } = &self.properties.bounds;
        let Some(filter) = self.filter_keys.build_ranges(smallest, largest) else {
            return Ok(None);
        };
        let (kind, expected_fpr) = (FilterKind::Range as u8, filter.expected_fpr(1));
        self.properties.range_filter = Some(FilterProperties { kind, expected_fpr });
        let TableIdentity { hash_seed, salt, .. } = self.identity;
        let block = filter_block::encode_range(&filter, Expected { hash_seed, salt });
        self.write_filter_block(|put| put(&block)).map(Some)
    }

    fn write_filter(&mut self, filter: &TableFilter, hash_seed: u64) -> io::Result<FilterHandle> {
        let expected = Expected { hash_seed, salt: self.identity.salt };
        self.write_filter_block(|put| filter_block::encode_to(filter, expected, put))
    }

    /// Writes the pieces of a block that `encode` passes to the given function.
    fn write_filter_block(
        &mut self,
        encode: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<FilterHandle> {
        let out = &mut self.out;
        out.align(FILTER_ALIGNMENT)?;
        let offset = out.offset();
        debug_assert!(offset.is_multiple_of(FILTER_ALIGNMENT));
        let mut checksum = None;
        encode(&mut |piece| {
            checksum = stored_checksum(piece);
            out.append(piece)
        })?;
        let checksum = checksum.expect("a filter block ends with its trailer");
        Ok(FilterHandle { offset, bytes: out.offset() - offset, checksum })
    }

    fn write_raw(&mut self, kind: BlockKind, content: &[u8]) -> io::Result<FooterBlock> {
        let (stored, trailer) = self.sealer.seal_raw(self.out.offset(), content);
        let BlockHandle { offset, bytes } = self.out.append_block(stored, &trailer)?;
        Ok(FooterBlock { kind, offset, bytes })
    }

    /// Completes bounds and counts.
    fn complete_properties(&mut self, range_tombstones: &RangeTombstones) {
        let properties = &mut self.properties;
        properties.expiry = std::mem::take(&mut self.expiry).finish().map(Box::new);
        let smallest = Arc::clone(&properties.bounds.smallest);
        let points = self.last.take().map(|last| TableBounds::inclusive(smallest, last.user_key));
        let ranges =
            range_tombstones.bounds().map(|(start, end)| TableBounds::of_range(start, end));
        debug_assert_eq!(points.is_some(), properties.points() > 0);
        properties.bounds = TableBounds::hull(points.iter().chain(&ranges)).unwrap_or_default();
        *properties.count_mut(Kind::RangeTombstone) = range_tombstones.len() as u64;
    }
}

fn write_index_block<S: TableSink>(
    out: &mut Output<S>,
    sealer: &Sealer,
    properties: &mut TableProperties,
    content: &[u8],
) -> io::Result<BlockHandle> {
    properties.content_bytes_max = properties.content_bytes_max.max(content.len() as u64);
    let (stored, trailer) = sealer.seal_raw(out.offset(), content);
    out.append_block(stored, &trailer)
}

fn check(is_valid: bool, otherwise: &'static str) -> io::Result<()> {
    if is_valid { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, otherwise)) }
}
