//! Blob files of open tables, and their removal after the last table.
//!
//! A table keeps the blob files that it refers to. So a file lives as long as a version, an
//! iterator or a compaction has such a table.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use sievedb_format::Corruption;
use sievedb_sstable::{
    BlobIdentity, BlobPieces, BlobReference, BlobUse, TableSource, blob_file::check_blob_file,
};

use super::{
    files::{TableFiles, table_error},
    obsolete::ObsoleteFiles,
};
use crate::{Error, Result, file_name::FileName, memory::Charge, sync::Mutex};

/// A blob file that an open table refers to.
#[derive(Debug)]
pub(crate) struct BlobFile {
    pub(crate) file: BlobUse,
    pub(crate) path: Arc<Path>,
    source: Arc<dyn TableSource>,
    /// A manifest may name a table that refers to the file.
    is_kept: AtomicBool,
    /// A compaction could not read a value of the file.
    is_unreadable: AtomicBool,
    obsolete_files: Option<Arc<ObsoleteFiles>>,
    bookkeeping: Option<Charge>,
}

impl BlobFile {
    /// Opens the file that `used` describes, for a caller that reads a store once.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is missing or another file; [`Error::Io`].
    pub(crate) fn open(
        files: &TableFiles,
        folder: &Path,
        store_id: u128,
        used: BlobUse,
    ) -> Result<Self> {
        let path: Arc<Path> = FileName::Blobs(used.file_id).path(folder).into();
        let source = blob_source(files, used.file_id, Arc::clone(&path))?;
        let identity = BlobIdentity { store_id, file_id: used.file_id, salt: used.salt };
        let checked = check_blob_file(&*source, identity, used.bytes);
        checked.map_err(|error| table_error(&path, error))?;
        Ok(Self {
            file: used,
            path,
            source,
            is_kept: AtomicBool::new(false),
            is_unreadable: AtomicBool::new(false),
            obsolete_files: None,
            bookkeeping: None,
        })
    }

    /// Reads a value by one access.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::FilesGone`]; [`Error::Corrupt`] with the path of the blob file.
    pub(crate) fn read(&self, reference: &BlobReference) -> Result<Bytes> {
        let read = reference.read(&*self.source, self.file.salt);
        read.map_err(|error| table_error(&self.path, error))
    }

    /// Reads the locations of the pieces of a value: by one access, unless it is in one block.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn pieces(&self, reference: &BlobReference) -> Result<BlobPieces> {
        let read = reference.pieces(&*self.source, self.file.salt);
        read.map_err(|error| table_error(&self.path, error))
    }

    /// Reads a piece of a value by one access.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    fn read_piece(&self, pieces: &BlobPieces, number: usize) -> Result<Bytes> {
        let read = pieces.read(&*self.source, number);
        read.map_err(|error| table_error(&self.path, error))
    }

    /// Returns `true` if a compaction could not read a value of the file.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(SeqCst)
    }

    /// Allows the next compaction to read the file.
    pub(crate) fn retry(&self) {
        self.is_unreadable.store(false, SeqCst);
    }

    /// Removes the file when its last table is dropped, unless it is kept.
    pub(super) fn own(&mut self, obsolete_files: &Arc<ObsoleteFiles>, bookkeeping: Charge) {
        obsolete_files.count_written(self.file.bytes);
        self.obsolete_files = Some(Arc::clone(obsolete_files));
        self.bookkeeping = Some(bookkeeping);
    }

    /// Keeps the file when its last table is dropped.
    pub(super) fn keep(&self) {
        self.is_kept.store(true, SeqCst);
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        if let Some(obsolete_files) =
            self.obsolete_files.as_ref().filter(|_| !self.is_kept.load(SeqCst))
        {
            obsolete_files.push_part_of_version(self.path.to_path_buf(), self.file.bytes);
        }
    }
}

/// The location of a value, with its file.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    pub(crate) file: Arc<BlobFile>,
    pub(crate) reference: BlobReference,
}

impl Blob {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// As [`BlobFile::read`].
    pub(crate) fn read(&self) -> Result<Bytes> {
        self.file.read(&self.reference)
    }

    /// Returns the length of the value, in bytes.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.reference.value_bytes
    }

    /// Reads the locations of the pieces of the value.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn pieces(&self) -> Result<BlobPieces> {
        self.file.pieces(&self.reference)
    }

    /// Reads one of the [`pieces`](Self::pieces).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn read_piece(&self, pieces: &BlobPieces, number: usize) -> Result<Bytes> {
        self.file.read_piece(pieces, number)
    }

    /// Reads the value for a compaction: see [`to_rewrite`](Self::to_rewrite).
    ///
    /// # Errors
    ///
    /// As [`to_rewrite`](Self::to_rewrite).
    pub(crate) fn read_to_rewrite(&self) -> Result<Option<Bytes>> {
        self.to_rewrite(self.read())
    }

    /// Returns the value that a compaction read. Returns `None` if the read failed: the compaction
    /// can keep the reference instead, so that damage is confined to reads of the value. Later
    /// compactions do not read the file.
    ///
    /// # Errors
    ///
    /// Those that [may be retried](Error::is_retryable), which are not about the file.
    pub(crate) fn to_rewrite<T>(&self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if error.is_retryable() => Err(error),
            Err(_) => {
                self.file.is_unreadable.store(true, SeqCst);
                Ok(None)
            }
            Ok(read) => Ok(Some(read)),
        }
    }
}

/// Returns the file of a reference among those of its table, which ascend.
///
/// # Errors
///
/// [`Corruption`] if the stored value is no reference, or refers to another file.
pub(crate) fn find_blob(files: &[Arc<BlobFile>], stored: &[u8]) -> Result<Blob, Corruption> {
    let reference = BlobReference::decode(stored)?;
    let what = "blob file of an entry";
    let found = files.binary_search_by_key(&reference.file_id, |it| it.file.file_id).ok();
    let file = found
        .map(|at| &files[at])
        .ok_or(Corruption::OutOfRange { what, value: reference.file_id })?;
    Ok(Blob { file: Arc::clone(file), reference })
}

/// The blob files of open tables, by number.
#[derive(Debug, Default)]
pub(crate) struct OpenBlobFiles(pub(super) Mutex<BTreeMap<u64, Weak<BlobFile>>>);

/// Returns the blob file `path` with number `id`.
///
/// # Errors
///
/// As [`TableFiles::source`].
pub(crate) fn blob_source(
    files: &TableFiles,
    id: u64,
    path: Arc<Path>,
) -> Result<Arc<dyn TableSource>> {
    files.source(id, path).map_err(|error| match error {
        Error::Corrupt { path, offset, source: Corruption::Missing { .. } } => {
            Error::corrupt(path, offset, Corruption::Missing { what: "blob file" })
        }
        error => error,
    })
}
