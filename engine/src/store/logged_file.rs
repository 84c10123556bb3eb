//! A blob file beside the log.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use sievedb_sstable::{BlobIdentity, BlobUse, BlobWriter};

use crate::{
    Error, Result,
    error::SYNC,
    file_name::FileName,
    fs::{AppendFile, Fs},
    keyspace_options::Compression,
    log::values::ValueFile,
    sync::Mutex,
    table::{blobs::BlobFile, obsolete::ObsoleteFiles, store::TableStore, unfinished::FileSink},
};

/// Counts an open file.
#[derive(Debug)]
pub(super) struct OpenCount(Arc<AtomicU64>);

impl OpenCount {
    /// Returns `None` if `files_max` files are open.
    pub(super) fn below(open: &Arc<AtomicU64>, files_max: u64) -> Option<Self> {
        let count = Self(Arc::clone(open));
        (open.fetch_add(1, Relaxed) < files_max).then_some(count)
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A blob file with values of log records. Obsolete when it is dropped, unless a table had it, or
/// the store was closed.
#[derive(Debug)]
pub(super) struct LoggedFile {
    id: u64,
    /// Random number of the file.
    pub(super) salt: u64,
    path: PathBuf,
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    obsolete_files: Arc<ObsoleteFiles>,
    /// The store was closed, and its log may need the file.
    is_closed: Arc<AtomicBool>,
    /// Held during a sync. No other lock is taken meanwhile.
    sync_turn: Mutex<SyncState>,
    written: AtomicU64,
    synced: AtomicU64,
    /// It takes no more values.
    is_stopped: AtomicBool,
    /// The whole file.
    ended: OnceLock<BlobUse>,
    /// The file once tables may refer to it, which unlinks it.
    blob: OnceLock<Arc<BlobFile>>,
}

/// Linux reports a failed writeback to one sync of an open file only. So one thread syncs at a
/// time, and its error is that of all later syncs.
#[derive(Debug)]
struct SyncState {
    /// `None` once the file takes no values and is durable. Its descriptor is counted until then.
    file: Option<(Arc<dyn AppendFile>, OpenCount)>,
    /// Its directory entry is durable.
    is_named: bool,
    failed: Option<Error>,
}

impl LoggedFile {
    /// Creates an empty file, and its writer with this buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn create(
        tables: &TableStore,
        is_closed: &Arc<AtomicBool>,
        descriptor: OpenCount,
        compression: Compression,
        buffer_bytes: usize,
    ) -> Result<(Arc<Self>, BlobWriter<FileSink>)> {
        let (id, fs) = (tables.new_file_id(), Arc::clone(&tables.fs));
        let path = FileName::Blobs(id).path(&tables.folder);
        let salt = fs.random_u64();
        let salt = salt.map_err(|error| Error::io("draw a random number for", &path, error))?;
        let file = fs.create(&path).map_err(|error| Error::io("create", &path, error))?;
        let sink = FileSink(Arc::clone(&file));
        let logged = Arc::new(Self {
            id,
            salt,
            path,
            fs,
            folder: tables.folder.clone(),
            obsolete_files: Arc::clone(&tables.obsolete_files),
            is_closed: Arc::clone(is_closed),
            sync_turn: Mutex::new(SyncState {
                file: Some((file, descriptor)),
                is_named: false,
                failed: None,
            }),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            ended: OnceLock::new(),
            blob: OnceLock::new(),
        });
        let identity = BlobIdentity { store_id: tables.store_id, file_id: id, salt };
        let writer = BlobWriter::new(sink, identity, compression, buffer_bytes);
        let writer = writer.map_err(|error| Error::io("write", &logged.path, error))?;
        Ok((logged, writer))
    }

    /// Notes that so many bytes were passed to the operating system.
    pub(super) fn note_written(&self, bytes: u64) {
        self.written.store(bytes, Release);
    }

    /// Ends the file, whose `writer` this is. A file whose end cannot be written takes no values
    /// either, and tables do not refer to it.
    pub(super) fn end(&self, writer: BlobWriter<FileSink>) {
        if let Ok((_, whole)) = writer.finish() {
            self.note_written(whole.bytes);
            let _ = self.ended.set(whole);
        }
    }

    /// Notes that the file takes no more values: the next sync closes it.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Release);
    }

    /// Unlinks a file without values at once: the disk may be full, and the log needs the room.
    pub(super) fn unlink(self) {
        // A failure leaves it to a worker.
        let _ = self.fs.unlink(&self.path);
    }

    /// Returns the whole file for tables, durable; `None` if it has no end, or cannot be opened.
    ///
    /// # Errors
    ///
    /// As [`ValueFile::sync`].
    pub(super) fn open(&self, tables: &TableStore) -> Result<Option<Arc<BlobFile>>> {
        let Some(whole) = self.ended.get() else { return Ok(None) };
        self.sync()?;
        if self.blob.get().is_none()
            && let Ok(blob) = tables.open_blob_file(*whole)
        {
            let _ = self.blob.set(blob);
        }
        Ok(self.blob.get().cloned())
    }

    fn sync_in_turn(&self, state: &mut SyncState) -> Result<()> {
        // Before the length, which grows no more then.
        let is_stopped = self.is_stopped.load(Acquire);
        let written = self.written.load(Acquire);
        let Some((file, _)) = &state.file else { return Ok(()) };
        if self.synced.load(Acquire) >= written {
            // Another thread made it durable meanwhile.
            if is_stopped {
                state.file = None;
            }
            return Ok(());
        }
        file.sync_data().map_err(|error| Error::io(SYNC, &self.path, error))?;
        if !state.is_named {
            let named = self.fs.sync_dir(&self.folder);
            named.map_err(|error| Error::io(SYNC, &self.folder, error))?;
            state.is_named = true;
        }
        self.synced.store(written, Release);
        if is_stopped {
            state.file = None;
        }
        Ok(())
    }

    fn is_synced(&self) -> bool {
        self.synced.load(Acquire) >= self.written.load(Acquire)
    }
}

impl ValueFile for LoggedFile {
    fn id(&self) -> u64 {
        self.id
    }

    fn written(&self) -> Option<u64> {
        Some(self.written.load(Acquire))
    }

    fn sync(&self) -> Result<()> {
        // After a failed sync some bytes are unsynced, so this check fails.
        if !self.is_stopped.load(Acquire) && self.is_synced() {
            return Ok(());
        }
        let state = &mut *self.sync_turn.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let synced = self.sync_in_turn(state);
        state.failed = synced.as_ref().err().cloned();
        synced
    }
}

impl Drop for LoggedFile {
    fn drop(&mut self) {
        if self.blob.get().is_none() && !self.is_closed.load(Acquire) {
            self.obsolete_files.push_part(std::mem::take(&mut self.path));
        }
    }
}
