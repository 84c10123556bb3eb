//! Creates, opens and deletes table files.

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_filter::FilterArena;
use sievedb_format::{Corruption, InternalKey};
use sievedb_sstable::{
    BlockCache, ReadError, Table, TableEnd, TableIdentity, TableSummary, TableWriter,
};

use crate::{
    Error, Options, Result,
    error::SYNC,
    file_name::FileName,
    filter_policy::FilterChoice,
    fs::{AppendFile, Fs},
    keyspace_options::{Compression, KeyspaceOptions},
    listener::EventListener,
    memory::{Charge, MemoryAccount, MemoryUse},
    memory_budget::MemoryParts,
    stats::Counters,
    table::bookkeeping::BUFFERS_BYTES,
    table::cache_room::{CacheRoom, ShareTaken, WorkerShare},
    table::end::end_bytes,
    table::files::TableFiles,
    table::obsolete::ObsoleteFiles,
    table::open_files::OpenFiles,
    table::unfinished::{FileSink, Unfinished},
    table::{FilterPlace, LiveTable, PrefixFilterPlace, TableMeta, table_error},
};

/// What a table writer buffers, in bytes, besides its blocks.
const WRITER_BYTES: usize = 256 << 10;
/// What the writer of a table takes at first: its block three times, as entries, as content and compressed,
/// and what a dictionary is trained from.
fn writer_bytes(options: &KeyspaceOptions) -> usize {
    let sample = match options.compression {
        Compression::Zstd { dictionary_bytes, .. } => SAMPLE_RATIO * dictionary_bytes as usize,
        _ => 0,
    };
    WRITER_BYTES + 3 * options.block_bytes + sample
}

/// The options of a table that one worker writes within its share: a block may have 1/8 of it, and what a dictionary
/// is trained from one half. Pure.
fn within_share(options: &KeyspaceOptions, share: u64) -> KeyspaceOptions {
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    let mut options = options.clone();
    options.block_bytes = options.block_bytes.min(share / 8);
    if let Compression::Zstd { dictionary_bytes, .. } = &mut options.compression {
        let sampled_max = share / 2 / SAMPLE_RATIO;
        *dictionary_bytes = u32::try_from(sampled_max).unwrap_or(u32::MAX).min(*dictionary_bytes);
    }
    options
}

/// A dictionary is trained from so many times its length.
const SAMPLE_RATIO: usize = 100;

/// Entries whose share of the filter is charged at a time.
pub(crate) const ENTRIES_CHARGED: u64 = 1 << 10;
/// What an entry takes until the filter is built: its hash in an array that may have an eighth to spare,
/// and 20 bytes while a ribbon is built.
pub(crate) const ENTRY_BYTES: usize = HASH_BYTES + 20;
/// A hash in an array that may have an eighth to spare.
const HASH_BYTES: usize = size_of::<u64>() * 9 / 8;

/// An entry above this is long: its share grows before it is copied.
const LONG_ENTRY_BYTES: u64 = 16 << 10;
/// A long entry is in the block to be and in its content, then in that and compressed, which may be longer.
const LONG_ENTRY_COPIES: u64 = 3;
/// After so many bytes of entries the writer's memory is looked at again.
const UNMEASURED_BYTES_MAX: u64 = 64 << 10;
/// Of the top index so much is part of what a writer takes at first.
const TOP_INDEX_BYTES: u64 = 64 << 10;

/// Creates, opens and deletes the table files of a store; hands out file ids.
#[derive(Debug)]
pub(crate) struct TableStore {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) folder: PathBuf,
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    pub(crate) memory: Arc<MemoryAccount>,
    pub(crate) cache_room: Arc<CacheRoom>,
    /// Where the filters of the tables lie.
    pub(crate) filter_arena: FilterArena,
    /// Threads that write tables at the same time.
    writers: u64,
    pub(super) files: TableFiles,
    next_file_id: AtomicU64,
    _buffers: Charge,
}

/// Where a new table goes in its keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub(crate) level: u8,
    pub(crate) run: u64,
}

impl TableStore {
    pub(crate) fn new(
        options: &Options,
        folder: &Path,
        store_id: u128,
        hash_seed: u64,
        next_file_id: u64,
        memory: Arc<MemoryAccount>,
        open_files: Arc<OpenFiles>,
    ) -> Self {
        let (fs, counters) = (Arc::clone(&options.fs), Arc::<Counters>::default());
        let files =
            TableFiles::new(Arc::clone(&fs), options.read_mode, open_files, Arc::clone(&counters));
        let filter_arena = FilterArena::new();
        filter_arena.set_bytes_max(in_memory(memory.limit(MemoryUse::Filters)));
        if options.has_workers() {
            // Whoever opens the store waits for its filters, and no longer than it must.
            filter_arena.begin_small();
        }
        let buffers = memory.charge(MemoryUse::Bookkeeping, BUFFERS_BYTES);
        let cache = Arc::new(BlockCache::new(memory.limit(MemoryUse::Indexes)));
        let cache_room = Arc::new(CacheRoom::new(Arc::clone(&cache), Arc::clone(&memory)));
        cache_room.fit();
        Self {
            fs,
            folder: folder.to_owned(),
            store_id,
            hash_seed,
            cache,
            counters,
            obsolete_files: Arc::default(),
            memory,
            cache_room,
            filter_arena,
            writers: options.worker_threads.max(1) as u64,
            files,
            next_file_id: AtomicU64::new(next_file_id),
            _buffers: buffers,
        }
    }

    /// A number that no file of this store has had.
    pub(crate) fn new_file_id(&self) -> u64 {
        self.next_file_id.fetch_add(1, Relaxed)
    }

    /// Length of all table files that are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.files.mapped_bytes()
    }

    /// Larger than the number of every file so far.
    pub(crate) fn next_file_id(&self) -> u64 {
        self.next_file_id.load(Relaxed)
    }

    /// Begins a table with the options of its keyspace, and this filter, in a share of which `reading_bytes`
    /// are taken to read: the table ends early for them, but has half of the share at least, and room for
    /// [`ENTRIES_CHARGED`] entries, however large its blocks and its dictionary are.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn create(
        &self,
        options: &KeyspaceOptions,
        filter: FilterChoice,
        share: &Arc<WorkerShare>,
        reading_bytes: u64,
    ) -> Result<TableBuilder> {
        let options = &within_share(options, share.bytes_max());
        let first_bytes = writer_bytes(options) as u64;
        let taken = share.take(first_bytes);
        let id = self.new_file_id();
        let path = FileName::Table(id).path(&self.folder);
        let file = self.fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let salt = self
            .fs
            .random_u64()
            .map_err(|error| Error::io("draw a random number for", &path, error))?;
        let writer = TableWriter::new(
            FileSink(Arc::clone(&file)),
            TableIdentity { store_id: self.store_id, file_id: id, salt, hash_seed: self.hash_seed },
            options.table_options(filter),
        );
        let writer = writer.map_err(|error| Error::io("write", &path, error))?;
        let unfinished = Unfinished::new(path, &self.obsolete_files);
        // The filters are built one after the other.
        let has_prefixes = options.prefix_extractor.present().is_some();
        let has_ranges = options.range_filter_bits_per_key > 0.0;
        let more = usize::from(has_prefixes) + usize::from(has_ranges);
        let entry_bytes = (ENTRY_BYTES + more * HASH_BYTES) as u64;
        // More than what it takes at first and for the first entries: else each would get a table.
        let least = first_bytes + ENTRIES_CHARGED * entry_bytes + 1;
        let bytes_max = share.bytes_max();
        let growing_bytes_max =
            bytes_max.saturating_sub(reading_bytes).max(bytes_max / 2).max(least);
        Ok(TableBuilder {
            writer,
            file,
            unfinished,
            id,
            salt,
            entry_bytes,
            first_bytes,
            entries_charged: 0,
            unmeasured_bytes: 0,
            taken,
            growing_bytes_max,
        })
    }

    /// What one worker may take at a time to write tables and filters, in bytes.
    pub(crate) fn writing_bytes_max(&self) -> u64 {
        self.memory.limit(MemoryUse::Writing) / self.writers
    }

    /// Opens a table that the manifest names, or is about to name, of a keyspace with these options. Its
    /// filters are not resident yet.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`] if the file is not the table that `meta` describes. A
    /// damaged filter is no error.
    pub(crate) fn open(
        &self,
        options: &KeyspaceOptions,
        meta: Arc<TableMeta>,
    ) -> Result<LiveTable> {
        let path = FileName::Table(meta.id).path(&self.folder);
        // Reserved, and not to be read as if they were not there.
        if meta.global_sequence.is_some() || !meta.blob_files.is_empty() {
            let source =
                Corruption::Unsupported { what: "kind of a table", value: meta.level.into() };
            return Err(Error::corrupt(path, 0, source));
        }
        let source = self.files.source(meta.id, path.clone())?;
        let identity = self.identity(&meta);
        let cache = Arc::clone(&self.cache);
        let end = TableEnd::read(source, end_bytes(&meta)).map_err(ReadError::Io);
        let end = Arc::new(end.map_err(|error| table_error(&path, error))?);
        let table = Table::open_with_end(&end, identity, meta.bytes, cache)
            .map_err(|error| table_error(&path, error))?;
        let filters = self.open_filters(&end, &meta, &options.prefix_extractor);
        let obsolete_files = Arc::clone(&self.obsolete_files);
        Ok(LiveTable::new(meta, table, filters, path, obsolete_files, &self.memory))
    }

    /// Sets the limits to the parts of a budget, but for that of the filters.
    pub(crate) fn set_memory_limits(&self, parts: &MemoryParts) {
        self.memory.set_limits(parts);
        self.filter_arena.set_bytes_max(in_memory(parts.filters));
        self.fit_cache();
    }

    /// Gives the block cache what others leave of its part: see [`CacheRoom::fit`].
    pub(crate) fn fit_cache(&self) {
        self.cache_room.fit();
    }

    /// The share of one worker, for what it writes next.
    pub(crate) fn worker_share(&self) -> Arc<WorkerShare> {
        WorkerShare::new(Arc::clone(&self.cache_room), self.writing_bytes_max())
    }

    /// As [`open`](Self::open) for a table that comes to an open store: tells `listener` of a filter that
    /// cannot be used, and fits the block cache.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn open_and_report(
        &self,
        keyspace: &str,
        options: &KeyspaceOptions,
        meta: &Arc<TableMeta>,
        listener: Option<&dyn EventListener>,
    ) -> Result<LiveTable> {
        let live = self.open(options, Arc::clone(meta))?;
        self.fit_cache();
        live.report(keyspace, listener);
        Ok(live)
    }

    /// Makes the entries of the folder durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn sync_folder(&self) -> Result<()> {
        let synced = self.fs.sync_folder(&self.folder);
        synced.map_err(|error| Error::io(SYNC, &self.folder, error))
    }

    /// The table `id`, which no manifest ever named, is of no use.
    pub(crate) fn discard(&self, id: u64) {
        self.obsolete_files.push(FileName::Table(id).path(&self.folder));
    }

    pub(super) fn identity(&self, meta: &TableMeta) -> TableIdentity {
        meta.identity(self.store_id, self.hash_seed)
    }
}

/// A table that is being written. Its file is obsolete if it is dropped before it is finished.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    writer: TableWriter<FileSink>,
    file: Arc<dyn AppendFile>,
    unfinished: Unfinished,
    id: u64,
    salt: u64,
    /// What an entry takes until the filters are built.
    entry_bytes: u64,
    /// What the writer takes at first, and mostly later, too.
    first_bytes: u64,
    entries_charged: u64,
    /// Bytes of entries since the writer's memory was looked at.
    unmeasured_bytes: u64,
    taken: ShareTaken,
    /// What the writer takes at first and for its entries may be so much: the share of one worker, less what
    /// it reads with.
    growing_bytes_max: u64,
}

impl TableBuilder {
    /// Whether the table must end here for want of memory: each entry leaves something for the filter, and
    /// each block in the index.
    pub(crate) fn has_its_share(&self) -> bool {
        let index_bytes = self.writer.growing_memory_bytes() as u64;
        let growing = self.entry_charge() + index_bytes.saturating_sub(TOP_INDEX_BYTES);
        self.first_bytes + growing >= self.growing_bytes_max
    }

    fn entry_charge(&self) -> u64 {
        self.entries_charged * self.entry_bytes
    }

    /// Takes what the writer and its entries need, and `more` bytes.
    fn measure(&mut self, more: u64) {
        let writer_bytes = self.first_bytes.max(self.writer.memory_bytes() as u64);
        self.taken.set(writer_bytes + self.entry_charge() + more);
        self.unmeasured_bytes = 0;
    }

    /// Adds the next entry.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        let bytes = (key.user_key.len() + value.len()) as u64;
        self.unmeasured_bytes += bytes;
        let is_long = bytes > LONG_ENTRY_BYTES;
        let is_uncharged = self.writer.entries() == self.entries_charged;
        if is_uncharged {
            self.entries_charged += ENTRIES_CHARGED;
        }
        if is_uncharged || is_long || self.unmeasured_bytes > UNMEASURED_BYTES_MAX {
            self.measure(if is_long { LONG_ENTRY_COPIES * bytes } else { 0 });
        }
        self.writer
            .add(key, value)
            .map_err(|error| Error::io("write", &self.unfinished.path, error))
    }

    /// Length of the file so far, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.estimated_bytes()
    }

    /// Writes the rest and makes the data durable. The entry in the folder is not.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn finish(self, place: TablePlace) -> Result<Arc<TableMeta>> {
        let Self { writer, file, mut unfinished, id, salt, taken: _taken, .. } = self;
        let path = &unfinished.path;
        let (_, summary) = writer.finish().map_err(|error| Error::io("write", path, error))?;
        file.sync_data().map_err(|error| Error::io(SYNC, path, error))?;
        unfinished.finish();
        Ok(Arc::new(meta(id, salt, place, summary)))
    }
}

/// As many bytes, or all there can be.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn meta(id: u64, salt: u64, place: TablePlace, summary: TableSummary) -> TableMeta {
    let in_table = |place| FilterPlace::in_file(id, place);
    TableMeta {
        id,
        level: place.level,
        run: place.run,
        bytes: summary.bytes,
        checksum: summary.checksum,
        salt,
        filter: summary.filter.map(in_table),
        prefix_filter: summary
            .prefix_filter
            .zip(summary.prefix_extractor)
            .map(|(place, extractor)| PrefixFilterPlace { place: in_table(place), extractor }),
        range_filter: summary.range_filter.map(in_table),
        global_sequence: None,
        smallest: summary.smallest.into(),
        largest: summary.largest.into(),
        entries: summary.entries,
        tombstones: summary.tombstones,
        smallest_sequence: summary.smallest_sequence,
        largest_sequence: summary.largest_sequence,
        oldest_expiry_ms: None,
        blob_files: Vec::new(),
    }
}
