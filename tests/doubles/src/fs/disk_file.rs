//! Files of a [`MemoryFs`](super::MemoryFs) and their handles.

use std::{
    fmt::{self, Debug},
    io, mem,
    ops::Range,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sievedb::fs::{AppendFile, FileLock, ReadFile};

use super::disk::Disk;

/// A file, independent of its names.
pub(super) struct File {
    /// Unique on its disk.
    pub(super) number: usize,
    pub(super) created_as: Arc<str>,
    content: Mutex<Content>,
    /// Number of shared locks, or [`ALONE`] for an exclusive lock.
    lock_holders: AtomicUsize,
}

/// [`File::lock_holders`] of an exclusive lock.
const ALONE: usize = usize::MAX;

/// Bytes of a file. It only grows, so each earlier state is a prefix, except for reserved bytes.
#[derive(Default)]
struct Content {
    /// Length before the first operation of the journal, without reserved bytes.
    base_bytes: usize,
    /// The same with reserved bytes.
    base_reserved_bytes: usize,
    /// Reserved length: zeros up to it are part of the file.
    reserved_bytes: usize,
    whole: Bytes,
    /// Bytes after `whole`.
    tail: Vec<u8>,
    /// Unsynced appends and reservations.
    unsynced: Vec<usize>,
}

impl Content {
    fn appended_bytes(&self) -> usize {
        self.whole.len() + self.tail.len()
    }

    /// Length with reserved bytes.
    fn len(&self) -> usize {
        self.appended_bytes().max(self.reserved_bytes)
    }
}

impl File {
    /// Creates a file with `bytes` before the first operation of the journal.
    pub(super) fn new(number: usize, created_as: Arc<str>, bytes: Bytes) -> Self {
        let content = Content { base_bytes: bytes.len(), whole: bytes, ..Content::default() };
        Self { number, created_as, content: Mutex::new(content), lock_holders: AtomicUsize::new(0) }
    }

    /// Returns all bytes. Copies them if some are reserved.
    pub(super) fn bytes(&self) -> Bytes {
        let appended = self.appended();
        let reserved_bytes = self.content.lock().reserved_bytes;
        if appended.len() >= reserved_bytes {
            return appended;
        }
        let mut bytes = appended.to_vec();
        bytes.resize(reserved_bytes, 0);
        bytes.into()
    }

    /// Returns the appended bytes. Copies them only if the file grew since the last call.
    pub(super) fn appended(&self) -> Bytes {
        let mut content = self.content.lock();
        if !content.tail.is_empty() {
            content.whole = [&content.whole[..], &content.tail].concat().into();
            content.tail = Vec::new();
        }
        content.whole.clone()
    }

    /// Returns the length before the first operation of the journal, without reserved bytes.
    pub(super) fn base_bytes(&self) -> usize {
        self.content.lock().base_bytes
    }

    /// Returns the reserved length before the first operation of the journal.
    pub(super) fn base_reserved_bytes(&self) -> usize {
        self.content.lock().base_reserved_bytes
    }

    /// Returns whether reserved bytes exist that are not appended yet.
    pub(super) fn has_reserved(&self) -> bool {
        let content = self.content.lock();
        content.appended_bytes() < content.reserved_bytes
    }

    /// Adds `bytes`, as the journal's `operation`. Returns their range.
    pub(super) fn append(&self, bytes: &[u8], operation: usize) -> Range<usize> {
        let mut content = self.content.lock();
        content.tail.extend_from_slice(bytes);
        content.unsynced.push(operation);
        let end = content.appended_bytes();
        end - bytes.len()..end
    }

    /// Makes the file `file_bytes` long, as the journal's `operation`. Returns whether it was
    /// shorter.
    pub(super) fn reserve(&self, file_bytes: usize, operation: usize) -> bool {
        let mut content = self.content.lock();
        let grows = content.len() < file_bytes;
        if grows {
            content.reserved_bytes = file_bytes;
            content.unsynced.push(operation);
        }
        grows
    }

    /// Returns the appends and reservations since the last call.
    pub(super) fn take_unsynced(&self) -> Vec<usize> {
        mem::take(&mut self.content.lock().unsynced)
    }

    /// Makes the current state the one before the first operation.
    pub(super) fn settle(&self) {
        let mut content = self.content.lock();
        content.base_bytes = content.appended_bytes();
        content.base_reserved_bytes = content.reserved_bytes;
        content.unsynced.clear();
    }

    /// Locks the file exclusively. Returns `None` if it is locked.
    pub(super) fn lock(self: Arc<Self>) -> Option<DiskLock> {
        self.lock_if(|holders| (holders == 0).then_some(ALONE))
    }

    /// Locks the file shared. Returns `None` if it is locked exclusively.
    pub(super) fn lock_shared(self: Arc<Self>) -> Option<DiskLock> {
        self.lock_if(|holders| (holders != ALONE).then(|| holders + 1))
    }

    fn lock_if(self: Arc<Self>, held: impl Fn(usize) -> Option<usize>) -> Option<DiskLock> {
        let locked = self.lock_holders.fetch_update(AcqRel, Relaxed, held).is_ok();
        // Not `then_some`: that always creates a lock, whose drop unlocks.
        locked.then(|| DiskLock { file: self })
    }
}

impl Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.created_as).finish()
    }
}

/// Appends to a file and writes the disk's journal.
pub(super) struct DiskAppend {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) file: Arc<File>,
}

impl Debug for DiskAppend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DiskAppend").field(&self.file).finish()
    }
}

impl AppendFile for DiskAppend {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if !bytes.is_empty() {
            self.disk.lock().append(&self.file, bytes);
        }
        Ok(())
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        let file_bytes = usize::try_from(file_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.disk.lock().reserve(&self.file, file_bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync_data(&self.file)
    }
}

impl ReadFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let content = self.content.lock();
        let end = usize::try_from(offset).ok().and_then(|start| start.checked_add(buf.len()));
        let Some(end) = end.filter(|end| *end <= content.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let start = end - buf.len();
        let in_whole = content.whole.get(start..).unwrap_or_default();
        let (left, right) = buf.split_at_mut(in_whole.len().min(buf.len()));
        left.copy_from_slice(&in_whole[..left.len()]);
        let in_tail = (start + left.len()).saturating_sub(content.whole.len());
        let in_tail = content.tail.get(in_tail..).unwrap_or_default();
        let (appended, reserved) = right.split_at_mut(in_tail.len().min(right.len()));
        appended.copy_from_slice(&in_tail[..appended.len()]);
        reserved.fill(0);
        Ok(())
    }

    fn map(&self) -> io::Result<Bytes> {
        Ok(self.bytes())
    }
}

/// A held lock.
#[derive(Debug)]
pub(super) struct DiskLock {
    file: Arc<File>,
}

impl FileLock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        let let_go = |holders| Some(if holders == ALONE { 0 } else { holders - 1 });
        let _ = self.file.lock_holders.fetch_update(Release, Relaxed, let_go);
    }
}
