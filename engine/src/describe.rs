//! Descriptions of files: bytes and their meaning.

use std::{io, path::Path, sync::Arc};

use sievedb_format::{Annotation, Corruption, FileHeader, FileKind, file_header::HEADER_BYTES};

use crate::{
    Error, Options, Result,
    file_name::FileName,
    fs::Fs,
    manifest::{self, Current},
    stats::Counters,
    table::files::TableFiles,
    wal,
};

/// Describes the file `path` of a store field by field. It may be a log segment, manifest, table,
/// filter, blob file, `CURRENT` or `CLOSED`, recognized by its name.
///
/// Reads without a lock and writes nothing, so the end of a file that is being written may be
/// incomplete. A damaged file is described up to the damage.
///
/// # Errors
///
/// [`Error::Io`], also if the name is not one of a store's files; [`Error::Corrupt`] if nothing of
/// it can be read.
pub fn describe(path: &Path) -> Result<Annotation> {
    Options::new().describe(path)
}

impl Options {
    /// Describes a file as [`describe`] does, on the file system of these options. Decrypts an
    /// encrypted file.
    ///
    /// # Errors
    ///
    /// As [`describe`], and errors of the keys.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<Annotation> {
        describe_file(&self.stored_fs(Arc::clone(&self.fs)).logical(), path.as_ref())
    }
}

fn describe_file(fs: &Arc<dyn Fs>, path: &Path) -> Result<Annotation> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let open = || fs.open(path).map_err(|error| Error::io("open", path, error));
    match FileName::parse(name) {
        Some(FileName::Log(id)) => wal::dump::describe(open()?, path.to_owned(), id),
        Some(FileName::Manifest(id)) => manifest::dump::describe(open()?, path.to_owned(), id),
        Some(name @ (FileName::Current | FileName::Closed)) => {
            let file = open()?;
            let is_closed = matches!(name, FileName::Closed);
            let kind = if is_closed { FileKind::Closed } else { FileKind::Current };
            let current = Current::read_file(&**fs, path, kind)?;
            let missing = || Error::corrupt(path, 0, Corruption::Missing { what: "CURRENT" });
            let current = current.ok_or_else(missing)?;
            let mut header = [0; HEADER_BYTES];
            file.read_at(&mut header, 0).map_err(|error| Error::io("read", path, error))?;
            let header = FileHeader::decode(&header);
            let header = header.map_err(|source| Error::corrupt(path, 0, source))?;
            Ok(current.describe(&header))
        }
        Some(FileName::Table(id)) => {
            Ok(sievedb_sstable::describe(&table_files(fs).source(id, path.to_owned())?))
        }
        Some(FileName::Filter(_)) => {
            let source = table_files(fs).source_once(path);
            let source = source.map_err(|error| Error::io("open", path, error))?;
            Ok(sievedb_sstable::describe_filter_file(&source))
        }
        Some(FileName::Blobs(_)) => {
            let source = table_files(fs).source_once(path);
            let source = source.map_err(|error| Error::io("open", path, error))?;
            Ok(sievedb_sstable::describe_blob_file(&source))
        }
        Some(FileName::Lock | FileName::Stats | FileName::Temporary(_)) | None => {
            open()?;
            let reason = "its name is not that of a table, filter, blob file, log, manifest, CURRENT or CLOSED";
            Err(Error::io("describe", path, io::Error::new(io::ErrorKind::InvalidInput, reason)))
        }
    }
}

fn table_files(fs: &Arc<dyn Fs>) -> TableFiles {
    TableFiles::one_by_one(Arc::clone(fs), Arc::<Counters>::default())
}
