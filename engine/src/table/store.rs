//! Creates, opens and deletes table files.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_filter::FilterArena;
use sievedb_format::{Corruption, InternalKey};
use sievedb_sstable::{
    BlockCache, ReadError, Table, TableEnd, TableIdentity, TableSink, TableSummary, TableWriter,
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
    table::end::end_bytes,
    table::files::TableFiles,
    table::obsolete::ObsoleteFiles,
    table::open_files::OpenFiles,
    table::{FilterPlace, LiveTable, PrefixFilterPlace, TableMeta, table_error},
};

/// What a table writer buffers, in bytes, besides its blocks.
const WRITER_BYTES: usize = 256 << 10;
/// What the writer of a table takes at first: its block three times, as entries, as content and compressed,
/// and what a dictionary is trained from.
fn writer_bytes(options: &KeyspaceOptions) -> usize {
    let sample = match options.compression {
        Compression::Zstd { dictionary_bytes, .. } => 100 * dictionary_bytes as usize,
        _ => 0,
    };
    WRITER_BYTES + 3 * options.block_bytes + sample
}

/// Entries whose share of the filter is charged at a time.
pub(crate) const ENTRIES_CHARGED: u64 = 1 << 10;
/// What an entry takes until the filter is built: its hash in an array that may have an eighth to spare,
/// and 20 bytes while a ribbon is built.
pub(crate) const ENTRY_BYTES: usize = size_of::<u64>() * 9 / 8 + 20;

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
    /// Where the filters of the tables lie.
    pub(crate) filter_arena: FilterArena,
    /// Threads that write tables at the same time.
    writers: u64,
    pub(super) files: TableFiles,
    next_file_id: AtomicU64,
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
        Self {
            fs,
            folder: folder.to_owned(),
            store_id,
            hash_seed,
            cache: Arc::new(BlockCache::new(memory.limit(MemoryUse::Indexes))),
            counters,
            obsolete_files: Arc::default(),
            memory,
            filter_arena,
            writers: options.worker_threads.max(1) as u64,
            files,
            next_file_id: AtomicU64::new(next_file_id),
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

    /// Begins a table with the options of its keyspace, and this filter, beside read buffers of
    /// `reading_bytes`: the table ends early for them, but has half of a worker's share at least, and room for
    /// [`ENTRIES_CHARGED`] entries, however large its blocks and its dictionary are.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn create(
        &self,
        options: &KeyspaceOptions,
        filter: FilterChoice,
        reading_bytes: u64,
    ) -> Result<TableBuilder> {
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
        let charge = self.memory.charge(MemoryUse::Writing, writer_bytes(options));
        // The filters are built one after the other.
        let has_prefixes = options.prefix_extractor.present().is_some();
        let has_ranges = options.range_filter_bits_per_key > 0.0;
        let more = usize::from(has_prefixes) + usize::from(has_ranges);
        let entry_bytes = ENTRY_BYTES + more * size_of::<u64>();
        let share = self.writing_bytes_max();
        // More than what it takes at first and for the first entries: else each would get a table.
        let least = charge.bytes() + (ENTRIES_CHARGED as usize * entry_bytes) as u64 + 1;
        let charge_max = share.saturating_sub(reading_bytes).max(share / 2).max(least);
        Ok(TableBuilder { writer, file, unfinished, id, salt, entry_bytes, charge, charge_max })
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

    /// Gives the block cache what the indexes leave of their common part: they are resident and take
    /// what they need, which it goes without. To be called when the indexes or the part have changed.
    pub(crate) fn fit_cache(&self) {
        /// Changes of a smaller share are not passed on, but rounded down.
        const STEPS: u64 = 64;

        let part = self.memory.limit(MemoryUse::Indexes);
        let left = part.saturating_sub(self.memory.bytes(MemoryUse::Indexes));
        let step = (part / STEPS).max(1);
        // It rounds up to its shards: `left` is not exceeded all the same, but by a remainder. Where nothing
        // is left it has one step beyond that: with a capacity of 0 it would remember no blocks that it no
        // longer has, even when it has grown again.
        let capacity = (left / step * step).max(step.min(part));
        if capacity.abs_diff(self.cache.capacity_bytes()) >= step {
            self.cache.set_capacity_bytes(capacity);
        }
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

/// A file that is being written: obsolete when it is dropped, unless it was finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) path: PathBuf,
    obsolete_files: Option<Arc<ObsoleteFiles>>,
}

impl Unfinished {
    pub(super) fn new(path: PathBuf, obsolete_files: &Arc<ObsoleteFiles>) -> Self {
        Self { path, obsolete_files: Some(Arc::clone(obsolete_files)) }
    }

    /// The file is whole.
    pub(super) fn finish(&mut self) {
        self.obsolete_files = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(obsolete_files) = &self.obsolete_files {
            obsolete_files.push(std::mem::take(&mut self.path));
        }
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
    entry_bytes: usize,
    charge: Charge,
    /// What the charge may be: the share of one worker, less what it reads with.
    charge_max: u64,
}

impl TableBuilder {
    /// Whether the table must end here for want of memory: each entry leaves something for the filter.
    pub(crate) fn has_its_share(&self) -> bool {
        self.charge.bytes() >= self.charge_max
    }

    /// Adds the next entry.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn add(&mut self, key: InternalKey<'_>, value: &[u8]) -> Result<()> {
        if self.writer.entries().is_multiple_of(ENTRIES_CHARGED) {
            self.charge.grow(ENTRIES_CHARGED as usize * self.entry_bytes);
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
        let Self { writer, file, mut unfinished, id, salt, charge: _charge, .. } = self;
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
        smallest: summary.smallest,
        largest: summary.largest,
        entries: summary.entries,
        tombstones: summary.tombstones,
        smallest_sequence: summary.smallest_sequence,
        largest_sequence: summary.largest_sequence,
        oldest_expiry_ms: None,
        blob_files: Vec::new(),
    }
}

/// A file as the table writer sees it.
#[derive(Debug)]
pub(super) struct FileSink(pub(super) Arc<dyn AppendFile>);

impl TableSink for FileSink {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }
}
