//! Descriptions of files: bytes and their meaning.

use std::{io, ops::ControlFlow, path::Path, sync::Arc};

use sievedb_format::{
    Annotation, Corruption, FileHeader, FileKind, annotation::NextPart, file_header::HEADER_BYTES,
};

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
    /// encrypted file. For a large file, use [`describe_parts`](Self::describe_parts).
    ///
    /// # Errors
    ///
    /// As [`describe`], and errors of the keys.
    pub fn describe(&self, path: impl AsRef<Path>) -> Result<Annotation> {
        let (described, all) = Annotation::of_parts(|next| self.describe_parts(path, next));
        described.map(|()| all)
    }

    /// Describes a file as [`describe`](Self::describe) does, in parts: a whole description takes
    /// several times as much memory as the file. Calls `next` with each block of a table, and with
    /// each record of a log segment or manifest. [`ControlFlow::Break`] ends the description.
    ///
    /// Formatted with the width 24, most parts are aligned with each other: `{part:24}`.
    ///
    /// # Errors
    ///
    /// As [`describe`](Self::describe). `next` may have been called.
    pub fn describe_parts(
        &self,
        path: impl AsRef<Path>,
        mut next: impl FnMut(Annotation) -> ControlFlow<()>,
    ) -> Result<()> {
        let fs = self.stored_fs(Arc::clone(&self.fs)).logical();
        describe_file(&fs, path.as_ref(), &mut next)
    }
}

fn describe_file(fs: &Arc<dyn Fs>, path: &Path, next: &mut NextPart<'_>) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let open = || fs.open(path).map_err(|error| Error::io("open", path, error));
    match FileName::parse(name) {
        Some(FileName::Log(id)) => wal::dump::describe(open()?, path.to_owned(), id, next)?,
        Some(FileName::Manifest(id)) => {
            manifest::dump::describe(open()?, path.to_owned(), id, next)?;
        }
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
            let _ = next(current.describe(&header));
        }
        Some(FileName::Table(id)) => {
            let source = table_files(fs).source(id, path.to_owned())?;
            let _ = sievedb_sstable::describe(&source, next);
        }
        Some(FileName::Filter(_)) => {
            let source = table_files(fs).source_once(path);
            let source = source.map_err(|error| Error::io("open", path, error))?;
            let _ = next(sievedb_sstable::describe_filter_file(&source));
        }
        Some(FileName::Blobs(_)) => {
            let source = table_files(fs).source_once(path);
            let source = source.map_err(|error| Error::io("open", path, error))?;
            let _ = next(sievedb_sstable::describe_blob_file(&source));
        }
        Some(FileName::Lock | FileName::Stats | FileName::Temporary(_)) | None => {
            open()?;
            let reason = "its name is not that of a table, filter, blob file, log, manifest, CURRENT or CLOSED";
            let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(Error::io("describe", path, error));
        }
    }
    // After a break, nothing is left to describe.
    Ok(())
}

fn table_files(fs: &Arc<dyn Fs>) -> TableFiles {
    TableFiles::one_by_one(Arc::clone(fs), Arc::<Counters>::default())
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    /// Otherwise a description would take several times as much memory as the file.
    #[test]
    fn large_files_are_described_in_short_parts() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
        let db = options.clone().open("db").expect("a new store");
        let write = |number: u32| {
            db.insert(number.to_be_bytes(), [7; 100]).expect("there is room");
        };
        (0..5_000).for_each(write);
        db.flush().expect("there is room");
        (0..5_000).for_each(write);
        drop(db);
        let mut large = 0;
        for name in fs.list("db".as_ref()).expect("it exists") {
            let path = Path::new("db").join(&name);
            if FileName::parse(&name).is_none() || name == "LOCK" {
                continue;
            }
            let all = options.describe(&path).expect("it is readable").len();
            let (mut fields, mut longest) = (0, 0);
            let described = options.describe_parts(&path, |part| {
                fields += part.len();
                longest = longest.max(part.len());
                ControlFlow::Continue(())
            });
            described.expect("it is readable");
            assert_eq!(fields, all, "{name}");
            if all > 5_000 {
                large += 1;
                assert!(longest < 500, "{name}: {longest} of {all} fields");
            }
            let mut parts = 0;
            let described = options.describe_parts(&path, |_| {
                parts += 1;
                ControlFlow::Break(())
            });
            described.expect("it is readable");
            assert_eq!(parts, 1, "{name}");
        }
        assert_eq!(large, 2, "a table and a log segment");
    }
}
