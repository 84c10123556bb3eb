//! Creates, opens and deletes table files.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_filter::FilterArena;
use sievedb_sstable::{BlockCache, ReadError, Table, TableIdentity, TableTail, TableWriter};

use crate::{
    Error, Options, Result,
    error::SYNC,
    file_name::FileName,
    filter_policy::FilterChoice,
    fs::{AppendFile, Fs},
    keyspace_options::KeyspaceOptions,
    listener::EventListener,
    memory::{Charge, MemoryAccount, MemoryUse},
    open_files::OpenFiles,
    stats::Counters,
    table::blobs::OpenBlobFiles,
    table::bookkeeping::BUFFERS_BYTES,
    table::builder::TableBuilder,
    table::cache_room::{CacheRoom, WorkerShare},
    table::end::end_bytes,
    table::file_calls::FileCalls,
    table::files::TableFiles,
    table::obsolete::ObsoleteFiles,
    table::room::{NewEntries, TableRoom, within_share},
    table::unfinished::{FileSink, Unfinished},
    table::unlink_pace::UnlinkPace,
    table::{LiveTable, TableMeta, table_error},
};

/// Creates, opens and deletes the table files of a store; allocates file ids.
#[derive(Debug)]
pub(crate) struct TableStore {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) folder: PathBuf,
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    pub(crate) unlink_pace: UnlinkPace,
    pub(crate) memory: Arc<MemoryAccount>,
    pub(crate) filter_arena: FilterArena,
    /// Number of threads that write tables concurrently.
    writers: u64,
    pub(crate) files: TableFiles,
    pub(super) blob_files: OpenBlobFiles,
    next_file_id: AtomicU64,
    /// Once the store is closing, tables being written are not needed.
    pub(crate) file_calls: FileCalls,
    _buffers: Charge,
    /// Declared last: all charges of the store are released before it leaves the pool.
    pub(crate) cache_room: Arc<CacheRoom>,
}

impl TableStore {
    pub(crate) fn new(
        options: &Options,
        folder: &Path,
        store_id: u128,
        hash_seed: u64,
        next_file_id: u64,
        cache_room: Arc<CacheRoom>,
        open_files: Arc<OpenFiles>,
    ) -> Self {
        let (fs, counters) = (Arc::clone(&options.fs), Arc::clone(cache_room.counters()));
        let (mode, follows) = (options.read_mode, options.follow);
        let files =
            TableFiles::new(Arc::clone(&fs), mode, open_files, Arc::clone(&counters), follows);
        let (cache, memory) = (Arc::clone(cache_room.cache()), Arc::clone(cache_room.memory()));
        let filter_arena = memory.filter_arena().clone();
        if options.has_workers() {
            // The open waits for the filters.
            filter_arena.start_with_small_pages();
        }
        let buffers = memory.charge(MemoryUse::Bookkeeping, BUFFERS_BYTES);
        cache_room.fit();
        Self {
            fs,
            folder: folder.to_owned(),
            store_id,
            hash_seed,
            cache,
            counters,
            obsolete_files: Arc::new(ObsoleteFiles::new(&memory)),
            unlink_pace: UnlinkPace::new(options.unlink_bytes_per_second),
            memory,
            filter_arena,
            writers: options.worker_threads.max(1) as u64,
            files,
            blob_files: OpenBlobFiles::default(),
            next_file_id: AtomicU64::new(next_file_id),
            file_calls: FileCalls::default(),
            _buffers: buffers,
            cache_room,
        }
    }

    /// Aborts the writing of tables: the store is closing.
    pub(crate) fn close(&self) {
        self.file_calls.close();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.file_calls.is_closing()
    }

    /// # Errors
    ///
    /// [`Error::Closed`] if the store is closing.
    pub(crate) fn check_not_closing(&self) -> Result<()> {
        if self.is_closing() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns a new file id, which no file of this store has had.
    pub(crate) fn new_file_id(&self) -> u64 {
        self.next_file_id.fetch_add(1, Relaxed)
    }

    /// Reopens the table `id` at the next read: another file has replaced it under its name.
    #[cfg(feature = "encryption")]
    pub(crate) fn reopen(&self, id: u64) {
        self.files.reopen(id);
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.files.mapped_bytes()
    }

    /// Returns a number above that of every file so far.
    pub(crate) fn next_file_id(&self) -> u64 {
        self.next_file_id.load(Relaxed)
    }

    /// Creates a file of the store.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Closed`] if the store is closing.
    pub(crate) fn create_file(&self, path: &Path) -> Result<Arc<dyn AppendFile>> {
        let _call = self.file_calls.begin()?;
        self.fs.create(path).map_err(|error| Error::io("create", path, error))
    }

    /// Creates a table with the options of its keyspace, and this filter, in a share of which
    /// `reading_bytes` are used for reading: see [`TableRoom`]. `entries` is `None` if their number
    /// is not known.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Closed`].
    pub(crate) fn create(
        &self,
        options: &KeyspaceOptions,
        filter: FilterChoice,
        share: &Arc<WorkerShare>,
        reading_bytes: u64,
        entries: Option<NewEntries>,
    ) -> Result<TableBuilder> {
        let (share_bytes, reserved) = (share.bytes_max(), reading_bytes + share.free_bytes());
        let options = &within_share(options, share_bytes);
        let mut room = TableRoom::new(options, filter, share_bytes, reserved);
        if let Some(NewEntries { of_table, of_all }) = entries {
            // The inputs are live until all tables are written.
            let tables = self.memory.live_tables() + of_all / room.hashed_entries_max().max(1);
            if tables >= self.memory.tables_ample() {
                let table_bytes = options.table_bytes;
                room = room.with_large_filter(filter, share_bytes, table_bytes, of_table);
            }
        }
        let taken = share.take(room.first_bytes + room.filter_bytes);
        let id = self.new_file_id();
        let path = FileName::Table(id).path(&self.folder);
        let file = self.create_file(&path)?;
        let salt = self
            .fs
            .random_u64()
            .map_err(|error| Error::io("draw a random number for", &path, error))?;
        let identity =
            TableIdentity { store_id: self.store_id, file_id: id, salt, hash_seed: self.hash_seed };
        let mut options = options
            .table_options(filter)
            .write_buffer_bytes(room.write_buffer_bytes)
            .index_partition_bytes(room.index_partition_bytes);
        if let Some(keys) = room.filter_keys_max {
            options = options.filter_keys_max(keys);
        }
        let writer = TableWriter::new(FileSink(Arc::clone(&file)), identity, options);
        let writer = writer.map_err(|error| Error::io("write", &path, error))?;
        let unfinished = Unfinished::new(path, &self.obsolete_files);
        Ok(TableBuilder::new(
            writer,
            file,
            unfinished,
            identity,
            room,
            taken,
            self.file_calls.closing_flag(),
        ))
    }

    /// Returns the share of one worker for writing tables and filters, in bytes.
    pub(crate) fn writing_bytes_max(&self) -> u64 {
        self.memory.limit(MemoryUse::Writing) / self.writers
    }

    /// Returns the length from which on a value is in a blob file without the option. It is 1/64 of
    /// the budget, or of the part of this store in a shared pool. A merge holds a copy of a value
    /// for each run and three of its output, while a blob file takes it piece by piece.
    pub(crate) fn unmergeable_value_bytes(&self) -> u64 {
        self.memory.limit(MemoryUse::Writing) / 8
    }

    /// Opens a table that the manifest names, or is about to name, of a keyspace with these
    /// options. Its filters are not resident yet.
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
        let path: Arc<Path> = FileName::Table(meta.id).path(&self.folder).into();
        let source = self.files.source(meta.id, Arc::clone(&path))?;
        let identity = self.identity(&meta);
        let cache = Arc::clone(&self.cache);
        let end = TableTail::read(source, end_bytes(&meta)).map_err(ReadError::Io);
        let end = Arc::new(end.map_err(|error| table_error(&path, error))?);
        let mut table = Table::open_with_tail(&end, identity, meta.bytes, cache)
            .map_err(|error| table_error(&path, error))?;
        table.share_bounds(&meta.bounds);
        if let Some(sequence) = meta.global_sequence {
            table.set_global_sequence(sequence);
        }
        let filter = Arc::new(self.open_point_filter(&end, &meta));
        let blobs = self.open_blobs(&meta)?;
        let obsolete_files = Arc::clone(&self.obsolete_files);
        let (table, memory) = (Arc::new(table), &self.memory);
        let live = LiveTable::new(meta, table, filter, blobs, path, obsolete_files, memory);
        self.find_scan_filters(&live, &options.prefix_extractor);
        Ok(live)
    }

    pub(crate) fn fit_cache(&self) {
        self.cache_room.fit();
    }

    /// Returns the share of a worker for any job except a flush.
    pub(crate) fn worker_share(&self) -> Arc<WorkerShare> {
        self.share_of(0)
    }

    /// Returns the share of a worker for a flush.
    pub(crate) fn flush_share(&self) -> Arc<WorkerShare> {
        WorkerShare::new(Arc::clone(&self.cache_room), self.writing_bytes_max(), true)
    }

    /// Returns a share of at least `bytes_min` bytes.
    pub(crate) fn share_of(&self, bytes_min: u64) -> Arc<WorkerShare> {
        let bytes = self.writing_bytes_max().max(bytes_min);
        WorkerShare::new(Arc::clone(&self.cache_room), bytes, false)
    }

    /// As [`open`](Self::open) for a table that joins an open store: notifies `listener` of an
    /// unusable filter, and fits the block cache.
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
        self.obsolete_files.count_written(meta.bytes);
        self.fit_cache();
        live.report(keyspace, listener);
        Ok(live)
    }

    /// Makes the directory entries durable.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn sync_dir(&self) -> Result<()> {
        let unlinked = self.obsolete_files.unlinked();
        let synced = self.fs.sync_dir(&self.folder);
        synced.map_err(|error| Error::io(SYNC, &self.folder, error))?;
        self.obsolete_files.forget(&unlinked);
        Ok(())
    }

    /// Removes a table that no manifest ever named, and the blob files written with it. `is_whole`
    /// is `true` if its group is complete, so that the last table of the group lists tables.
    pub(crate) fn discard(&self, table: &TableMeta, is_whole: bool) {
        let blobs = table.own_blob_files().map(|id| FileName::Blobs(id).path(&self.folder));
        self.obsolete_files.extend(blobs);
        let path = FileName::Table(table.id).path(&self.folder);
        match is_whole {
            true => self.obsolete_files.push(path),
            false => self.obsolete_files.push_part(path),
        }
    }

    pub(crate) fn identity(&self, meta: &TableMeta) -> TableIdentity {
        meta.identity(self.store_id, self.hash_seed)
    }
}
