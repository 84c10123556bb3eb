//! Writes a table from front to back.

use std::{io, sync::Arc};

use sievedb_filter::{Expected, FilterKind, TableFilter, filter_block};
use sievedb_format::{
    Encode, FileHeader, FileKind, InternalKey, KEY_BYTES_MAX, Kind, SequenceNumber, TableBounds,
    Trailer, VALUE_BYTES_MAX,
    range_tombstone::{RangeTombstone, RangeTombstones},
};

use crate::{
    block::{BlockBuilder, stored::Sealer},
    filter_keys::{FilterKeys, PrefixFilter},
    filter_state::{FILTER_ALIGNMENT, FilterPlace, stored_checksum},
    footer::{BlockKind, Footer, FooterBlock, TAIL_BYTES},
    handle::BlockHandle,
    identity::TableIdentity,
    index::IndexBuilder,
    options::TableOptions,
    output::Output,
    properties::{FilterProperties, TableOrigin, TableProperties},
    source::TableSink,
    summary::TableSummary,
};

/// Writes a table from front to back.
///
/// Takes memory for a block of data, the open index partition, the top index and a write buffer,
/// all of them bounded by options or the largest entry; only 8 bytes for each distinct user key,
/// and for each distinct prefix, grow with the table, until the filters are built, and as many
/// again for each user key with a range filter.
///
/// After an error the table is of no use, nor is the writer.
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
    properties: TableProperties,
}

/// The key of the last entry.
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
    /// Starts a table at the beginning of `sink`.
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
            data: BlockBuilder::new(),
            index: IndexBuilder::new(options.index_partition_bytes),
            last: None,
            filter_keys: FilterKeys::new(&options, &identity),
            range_tombstones: Vec::new(),
            properties: TableProperties::new(&options),
            options,
        })
    }

    /// Adds an entry, which must be behind the one before.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if it is not, if key or value are too long, or if the kind
    /// is not that of a point or has no stored form yet. Else those of the sink.
    ///
    /// # Panics
    ///
    /// If the trailer is none of a write; see [`Trailer::kind`].
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> io::Result<()> {
        let kind = key.trailer.kind();
        check(key.user_key.len() <= KEY_BYTES_MAX, "a key is too long")?;
        check(value.len() <= VALUE_BYTES_MAX, "a value is too long")?;
        check(kind != Kind::RangeTombstone, "a range tombstone is not a point")?;
        check(kind != Kind::PutWithExpiry, "values with an expiry have no stored form yet")?;
        let is_new_user_key = match &self.last {
            Some(last) => {
                check(last.key() < key, "entries are not in ascending order")?;
                last.user_key != key.user_key
            }
            None => true,
        };
        let is_full = self.data.content_bytes_max_with(key, value) > self.options.block_bytes;
        if is_full && !self.data.is_empty() {
            self.end_data_block(Some(key))?;
        }
        self.data.add(key, value);
        if is_new_user_key {
            self.properties.user_keys += 1;
            self.filter_keys.add(key.user_key);
        }
        self.count(kind, key.trailer.sequence());
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
        Ok(())
    }

    /// Adds a range tombstone. Their order does not matter; they are kept in memory until the end.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the range is empty or its bounds are too long.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> io::Result<()> {
        let check = RangeTombstones::new(vec![tombstone.clone()]);
        check.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.count(Kind::RangeTombstone, tombstone.sequence);
        self.range_tombstones.push(tombstone);
        Ok(())
    }

    /// Sets the place of the table in its store, and replaces an earlier one. To be called before
    /// [`finish`](Self::finish). Without it a repair without a manifest loses the table.
    pub fn set_origin(&mut self, origin: TableOrigin) {
        self.properties.origin = Some(Box::new(origin));
    }

    fn count(&mut self, kind: Kind, sequence: SequenceNumber) {
        let properties = &mut self.properties;
        let is_first = properties.entries() == 0;
        *properties.count_mut(kind) += 1;
        let smallest = if is_first { sequence } else { properties.smallest_sequence };
        properties.smallest_sequence = smallest.min(sequence);
        properties.largest_sequence = properties.largest_sequence.max(sequence);
    }

    /// Bytes of the file so far. A few blocks may not have reached the sink yet.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.out.offset()
    }

    /// Length that the file would have if it were finished now, within some hundred bytes; less if
    /// the open block compresses well.
    #[must_use]
    pub fn estimated_bytes(&self) -> u64 {
        let filter_bits = self.filter_keys.filter_bits();
        let pending = self.data.content_bytes_max() + self.index.pending_bytes() + TAIL_BYTES;
        self.out.offset() + pending as u64 + (filter_bits / 8.0).ceil() as u64
    }

    /// Memory that it takes now, but for what the filters are built over.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |last| last.user_key.capacity());
        let buffers = self.data.memory_bytes() + self.index.memory_bytes() + last;
        self.out.memory_bytes()
            + self.sealer.memory_bytes()
            + buffers
            + self.properties.memory_bytes()
    }

    /// What of that grows with the table: the top index.
    #[must_use]
    pub fn growing_memory_bytes(&self) -> usize {
        self.index.top_memory_bytes()
    }

    /// Number of entries so far, tombstones and range tombstones included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.properties.entries()
    }

    /// Writes what is left: the rest of data and index, the filters, properties and footer.
    ///
    /// The sink is not synced. A table without entries is complete too.
    ///
    /// # Errors
    ///
    /// Those of the sink.
    pub fn finish(self) -> io::Result<(S, TableSummary)> {
        self.finish_cancellable(&|| false)
    }

    /// As [`finish`](Self::finish), but can be cancelled. `is_cancelled` is called often, and must
    /// always return `true` after the first time.
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
            .expect("add_range_tombstone checked them");
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
        for (kind, place) in filters {
            if let Some(FilterPlace { offset, bytes, .. }) = place {
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
            prefix_extractor: properties.prefix_filter.map(|(_, name)| name),
            bounds: properties.bounds,
            smallest_sequence: properties.smallest_sequence,
            largest_sequence: properties.largest_sequence,
            oldest_expiry_ms: properties.oldest_expiry_ms,
        };
        Ok((sink, summary))
    }

    /// Writes the data block, which is not empty. The next one starts with `next`.
    fn end_data_block(&mut self, next: Option<InternalKey<'_>>) -> io::Result<()> {
        let Self { out, sealer, data, index, properties, last, .. } = self;
        let content = data.finish();
        properties.data_blocks += 1;
        properties.content_bytes += content.len() as u64;
        note_content(properties, content);
        let offset = out.offset();
        let (stored, trailer) = sealer.seal(offset, content);
        let handle = write(out, stored, &trailer)?;
        data.reset();
        let last = last.as_ref().expect("a block that is not empty has a last key").key();
        index.add(last, next, handle, |partition| {
            write_index_block(out, sealer, properties, partition)
        })
    }

    /// Writes what is left of the index.
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
    ) -> io::Result<Option<FilterPlace>> {
        let Some(filter) = self.filter_keys.build_points(is_cancelled) else { return Ok(None) };
        self.properties.filter = Some(FilterProperties::of(&filter));
        self.write_filter(&filter, self.identity.hash_seed).map(Some)
    }

    fn write_prefix_filter(
        &mut self,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<Option<FilterPlace>> {
        let Some(built) = self.filter_keys.build_prefixes(is_cancelled) else { return Ok(None) };
        let PrefixFilter { filter, hash_seed, extractor } = built;
        self.properties.prefix_filter = Some((FilterProperties::of(&filter), extractor));
        self.write_filter(&filter, hash_seed).map(Some)
    }

    fn write_range_filter(&mut self) -> io::Result<Option<FilterPlace>> {
        let TableBounds { smallest, largest, .. } = &self.properties.bounds;
        let Some(filter) = self.filter_keys.build_ranges(smallest, largest) else {
            return Ok(None);
        };
        let (kind, expected_fpr) = (FilterKind::Range as u8, filter.expected_fpr(1));
        self.properties.range_filter = Some(FilterProperties { kind, expected_fpr });
        let TableIdentity { hash_seed, salt, .. } = self.identity;
        let block = filter_block::encode_range(&filter, Expected { hash_seed, salt });
        self.write_filter_block(&block).map(Some)
    }

    /// Writes a filter over hashes with this seed.
    fn write_filter(&mut self, filter: &TableFilter, hash_seed: u64) -> io::Result<FilterPlace> {
        let block = filter_block::encode(filter, Expected { hash_seed, salt: self.identity.salt });
        self.write_filter_block(&block)
    }

    fn write_filter_block(&mut self, block: &[u8]) -> io::Result<FilterPlace> {
        self.out.align(FILTER_ALIGNMENT)?;
        let (offset, bytes) = (self.out.offset(), block.len() as u64);
        self.out.append(block)?;
        let checksum = stored_checksum(block).expect("a filter block ends with its trailer");
        Ok(FilterPlace { offset, bytes, checksum })
    }

    fn write_raw(&mut self, kind: BlockKind, content: &[u8]) -> io::Result<FooterBlock> {
        let (stored, trailer) = self.sealer.seal_raw(self.out.offset(), content);
        let BlockHandle { offset, bytes } = write(&mut self.out, stored, &trailer)?;
        Ok(FooterBlock { kind, offset, bytes })
    }

    /// Widens the bounds by the last key and the range tombstones.
    fn complete_properties(&mut self, range_tombstones: &RangeTombstones) {
        let properties = &mut self.properties;
        let smallest = Arc::clone(&properties.bounds.smallest);
        let points = self.last.take().map(|last| TableBounds::inclusive(smallest, last.user_key));
        let ranges = range_tombstones.bounds().map(|(start, end)| TableBounds {
            largest_excluded: true,
            ..TableBounds::inclusive(start, end)
        });
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
    note_content(properties, content);
    let (stored, trailer) = sealer.seal_raw(out.offset(), content);
    write(out, stored, &trailer)
}

fn note_content(properties: &mut TableProperties, content: &[u8]) {
    properties.content_bytes_max = properties.content_bytes_max.max(content.len() as u64);
}

fn write<S: TableSink>(
    out: &mut Output<S>,
    stored: &[u8],
    trailer: &[u8],
) -> io::Result<BlockHandle> {
    let offset = out.offset();
    out.append(stored)?;
    out.append(trailer)?;
    Ok(BlockHandle { offset, bytes: out.offset() - offset })
}

fn check(is_valid: bool, otherwise: &'static str) -> io::Result<()> {
    if is_valid { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, otherwise)) }
}
