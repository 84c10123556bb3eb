//! Long values that are written once: to blob files that the log refers to.
//!
//! A plain put of a long value appends the value to the open blob file of its keyspace. The log
//! record refers to it: see [`values`](crate::log::values). Memtables have the value too, so reads
//! do not change. A flush ends the blob files of its memtables, and writes references instead of
//! values to its tables.
//!
//! | a file stays while                             | because                   |
//! |------------------------------------------------|---------------------------|
//! | it takes values, or a record waits for the log | both have [`LoggedFile`]  |
//! | a log segment refers to it                     | the segment has it        |
//! | a table refers to it                           | the table has [`BlobFile`] |
//!
//! Values of one memtable are in the order of their writes, not of their keys. They count towards
//! the length of log segments, and of the log.
//!
//! A crash may leave unreferenced files; the next open unlinks them. The open rewrites the log with
//! all values, so a log never refers to a file of an earlier open.
//!
//! Values stay in the log in encrypted stores, because their blob files cannot be read before they
//! end. They also stay in stores that retain changes, because the log outlives its values. So do
//! values with a time to live, merge operands, values of conditional writes and transactions, and
//! values for which no buffer is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use sievedb_format::Trailer;
use sievedb_sstable::{BlobReference, BlobWriter, PIECE_BYTES};

use super::logged_file::{LoggedFile, OpenCount};
use crate::{
    Result,
    commit::Write,
    keyspace_options::Compression,
    log::values::{LoggedValue, LoggedValues, ValueFile, fit_record},
    memory::{Charge, MemoryUse},
    read::tree::Tree,
    read::view::PlacedMemtable,
    resolve::is_lasting_value,
    store::Store,
    sync::Mutex,
    table::{
        blobs::{Blob, BlobFile},
        store::TableStore,
        unfinished::FileSink,
    },
};

/// Shorter values are in the log: a write call for each costs more than a copy.
pub(super) const VALUE_BYTES_MIN: u64 = 1 << 10;

/// Buffer of an open file. A shorter value and its checksum are one append.
const BUFFER_BYTES: usize = 32 << 10;

/// Memory of an open file: its buffer, and a compressed piece in a buffer that doubles.
const OPEN_FILE_BYTES: usize = BUFFER_BYTES + 2 * PIECE_BYTES;

/// Open files take this part of the limit of memtables, which is at most half of the budget.
const OPEN_SHARE: u64 = 16;

/// Maximum number of files that take values.
const OPEN_FILES_MAX: u64 = 16;

/// Maximum number of descriptors: each file has one until it is whole and durable. More values stay
/// in the log.
const DESCRIPTORS_MAX: u64 = 64;

/// The blob files beside the log of an open store.
#[derive(Debug)]
pub(super) struct ValueFiles {
    /// By keyspace.
    open: Mutex<BTreeMap<u64, Arc<Slot>>>,
    /// All files that a memtable may refer to, by number.
    files: Mutex<BTreeMap<u64, Weak<LoggedFile>>>,
    opened: Arc<AtomicU64>,
    descriptors: Arc<AtomicU64>,
    is_closed: Arc<AtomicBool>,
    /// Values stay in the log.
    is_off: AtomicBool,
}

/// The file that takes the values of a keyspace.
#[derive(Debug)]
struct Slot {
    tree: Weak<Tree>,
    open: Mutex<Option<OpenFile>>,
}

/// A file that takes values.
#[derive(Debug)]
struct OpenFile {
    file: Taking,
    writer: BlobWriter<FileSink>,
    compression: Compression,
    /// Address of the memtable that was active: each begins a file.
    memtable: usize,
    _charge: Charge,
    _count: OpenCount,
}

/// A file that takes values until this is dropped.
#[derive(Debug)]
struct Taking(Arc<LoggedFile>);

impl Drop for Taking {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl OpenFile {
    fn end(self) {
        self.file.0.end(self.writer);
    }

    /// Appends a value, and passes it to the operating system.
    fn add(&mut self, value: &[u8]) -> Option<BlobReference> {
        let reference = self.writer.add(value).ok()?;
        self.writer.flush().ok()?;
        self.file.0.note_written(self.writer.bytes());
        Some(reference)
    }
}

impl ValueFiles {
    pub(super) fn new(is_off: bool) -> Self {
        let (open, files, opened, descriptors, is_closed) = Default::default();
        Self { open, files, opened, descriptors, is_closed, is_off: AtomicBool::new(is_off) }
    }

    /// Writes a value of `tree`. Returns its place; `None` if it must stay in the log.
    fn add(
        &self,
        tables: &TableStore,
        tree: &Arc<Tree>,
        value: &[u8],
    ) -> Option<(Arc<LoggedFile>, BlobReference)> {
        let slot = Arc::clone(self.open.lock().entry(tree.id).or_insert_with(|| {
            Arc::new(Slot { tree: Arc::downgrade(tree), open: Mutex::default() })
        }));
        let mut open = slot.open.lock();
        // Under the lock: once it is stopped, another process may own the directory. Of a dropped
        // keyspace, no later call closes the file.
        if self.is_off() || tree.is_dropped() {
            return None;
        }
        let (compression, bytes_max) = {
            let options = tree.options();
            (options.compression, options.table_bytes)
        };
        let memtable = Arc::as_ptr(&tree.view().active) as usize;
        let is_full = |open: &mut OpenFile| {
            open.writer.bytes() >= bytes_max
                || (open.memtable, open.compression) != (memtable, compression)
        };
        if let Some(full) = open.take_if(is_full) {
            full.end();
        }
        if open.is_none() {
            *open = self.create(tables, compression, memtable);
        }
        let file = open.as_mut()?;
        match file.add(value) {
            Some(reference) => Some((Arc::clone(&file.file.0), reference)),
            None => {
                // Without an end. Earlier values may be whole.
                let file = Arc::clone(&file.file.0);
                *open = None;
                if let Some(unused) = Arc::into_inner(file) {
                    unused.unlink();
                }
                None
            }
        }
    }

    /// Creates a file; `None` without room, or if it cannot be created. The log reports a disk that
    /// is full.
    fn create(
        &self,
        tables: &TableStore,
        compression: Compression,
        memtable: usize,
    ) -> Option<OpenFile> {
        let share = tables.memory.limit(MemoryUse::Memtables) / OPEN_SHARE;
        let files_max = (share / OPEN_FILE_BYTES as u64).min(OPEN_FILES_MAX);
        let Some(count) = OpenCount::below(&self.opened, files_max) else {
            self.drop_files_of_dropped();
            return None;
        };
        let descriptor = OpenCount::below(&self.descriptors, DESCRIPTORS_MAX)?;
        let created =
            LoggedFile::create(tables, &self.is_closed, descriptor, compression, BUFFER_BYTES);
        let (file, writer) = created.ok()?;
        let file = Taking(file);
        let mut files = self.files.lock();
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(file.0.id(), Arc::downgrade(&file.0));
        drop(files);
        let charge = tables.memory.charge(MemoryUse::Bookkeeping, OPEN_FILE_BYTES);
        Some(OpenFile { file, writer, compression, memtable, _charge: charge, _count: count })
    }

    fn drop_files_of_dropped(&self) {
        let is_live = |slot: &Slot| slot.tree.upgrade().is_some_and(|tree| !tree.is_dropped());
        self.open.lock().retain(|_, slot| is_live(slot));
    }

    /// Closes the file of a keyspace that was dropped or cleared, which is visible.
    pub(super) fn forget(&self, id: u64) {
        let slot = self.open.lock().remove(&id);
        if let Some(slot) = slot {
            drop(slot.open.lock().take());
        }
    }

    fn is_off(&self) -> bool {
        self.is_off.load(Acquire)
    }

    /// Takes no more values, and waits for those being written: the store is being closed. Files
    /// without a record are obsolete.
    pub(super) fn stop(&self) {
        self.is_off.store(true, Release);
        let slots = std::mem::take(&mut *self.open.lock());
        slots.values().for_each(|slot| drop(slot.open.lock().take()));
    }

    /// Keeps all files for the log of the closed store.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Release);
    }

    /// Ends the files with values of `memtables` of the keyspace `id`. Returns them.
    pub(super) fn end(&self, id: u64, memtables: &[Arc<PlacedMemtable>]) -> Vec<Arc<LoggedFile>> {
        let needed: BTreeSet<_> =
            memtables.iter().flat_map(|placed| placed.referenced_files()).collect();
        if needed.is_empty() {
            return Vec::new();
        }
        let slot = self.open.lock().get(&id).cloned();
        if let Some(slot) = slot {
            let ended = slot.open.lock().take_if(|open| needed.contains(&open.file.0.id()));
            ended.into_iter().for_each(OpenFile::end);
        }
        let files = self.files.lock();
        needed.iter().filter_map(|id| files.get(id)?.upgrade()).collect()
    }
}

/// Places of the values of memtables that are being flushed.
#[derive(Debug)]
pub(super) struct FlushedValues<'m> {
    memtables: &'m [Arc<PlacedMemtable>],
    files: BTreeMap<u64, Arc<BlobFile>>,
}

impl FlushedValues<'_> {
    /// Returns the place of the value of an entry; `None` if it must be copied.
    pub(super) fn find(&self, trailer: Trailer, value: &[u8]) -> Option<Blob> {
        if self.files.is_empty() || !is_lasting_value(trailer) {
            return None;
        }
        let mut places = self.memtables.iter();
        let reference = places.find_map(|placed| placed.reference(trailer.sequence()))?;
        let file = Arc::clone(self.files.get(&reference.file_id)?);
        debug_assert_eq!(reference.value_bytes, value.len() as u64, "another value");
        (reference.value_bytes == value.len() as u64).then_some(Blob { file, reference })
    }
}

impl Store {
    /// Writes the long values of `write` to blob files. Returns them for the payload, and their
    /// places with the indexes of their entries; `None` if there are none.
    pub(super) fn log_values(
        &self,
        write: &Write,
    ) -> Option<(LoggedValues, Vec<(usize, BlobReference)>)> {
        if self.values.is_off() || (write.payload.len() as u64) < VALUE_BYTES_MIN {
            return None;
        }
        let (mut logged, mut places) = (LoggedValues::default(), Vec::new());
        let mut value_bytes = 0;
        for (index, entry) in write.entries.iter().enumerate() {
            let (tree, bytes) = (&write.targets[entry.target].tree, entry.value.len() as u64);
            let is_long = is_lasting_value(Trailer::new(0, entry.kind))
                && bytes >= VALUE_BYTES_MIN
                && tree.options().blob_value_bytes.is_some_and(|bytes_min| bytes >= bytes_min);
            if !is_long {
                continue;
            }
            value_bytes += bytes;
            if !fit_record(places.len() as u64 + 1, value_bytes) {
                break;
            }
            let range = entry.value.clone();
            let value = &write.payload[range.clone()];
            let Some((file, reference)) = self.values.add(&self.tables, tree, value) else { break };
            logged.values.push(LoggedValue { range, reference, salt: file.salt });
            let is_known = |known: &Arc<dyn ValueFile>| known.id() == file.id();
            if !logged.files.iter().any(is_known) {
                logged.files.push(file);
            }
            places.push((index, reference));
        }
        (!places.is_empty()).then_some((logged, places))
    }

    /// Makes the ended `files` of `memtables` durable, for references of tables.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io); the store is read-only then.
    pub(super) fn flushed_values<'m>(
        &self,
        memtables: &'m [Arc<PlacedMemtable>],
        files: &[Arc<LoggedFile>],
    ) -> Result<FlushedValues<'m>> {
        let mut opened = BTreeMap::new();
        for file in files {
            let blob = file.open(&self.tables).map_err(|error| self.poison(error))?;
            opened.extend(blob.map(|blob| (file.id(), blob)));
        }
        Ok(FlushedValues { memtables, files: opened })
    }
}
