//! Formats of the files of a store, for upgrades.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use sievedb_format::{FileHeader, Release, file_header::HEADER_BYTES};
use sievedb_sstable::TableMetadata;

use crate::{
    Error, Options, Result,
    file_name::FileName,
    fs::Fs,
    manifest::load,
    store::verify::{check_traces, current_is_missing, list},
    table::{files::TableFiles, table_error},
};

/// Formats of the files of a store: the result of [`Options::formats`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FormatReport {
    /// Number of files that this release can read, by the release that wrote them. All of them have
    /// the [format version](crate::FORMAT_VERSION) that this release writes.
    pub readable: BTreeMap<Release, u64>,
    /// Files that it cannot read: [`Error::NewerRelease`] if a later release wrote them,
    /// [`Error::Corrupt`] if they are damaged, [`Error::Io`].
    pub unreadable: Vec<Error>,
}

impl Options {
    /// Reads the formats of the files in the directory `path`, to decide whether this release can
    /// open the store. See `docs/operations.md` for upgrades and downgrades.
    ///
    /// Takes no lock and writes nothing: a process may have the store open, and files that it
    /// removes meanwhile are omitted. Reads the headers of all files, the manifest, and the footer
    /// and properties of each table: a few KiB a file. Does not verify the data, as
    /// [`verify`](Self::verify) does.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`]; [`Error::NotADirectory`]; [`Error::Io`] if the directory cannot be
    /// listed; errors of the keys, as [`verify`](Self::verify).
    pub fn formats(&self, path: impl AsRef<Path>) -> Result<FormatReport> {
        let (stored, folder) = (self.stored_fs(Arc::clone(&self.fs)), path.as_ref());
        let fs = &stored.logical();
        check_traces(&**fs, folder)?;
        stored.check(folder).map_err(|(path, error)| Error::io("open", path, error))?;
        let mut report = FormatReport::default();
        for name in list(&**fs, folder)? {
            let Some(file) = FileName::parse(&name).filter(|file| has_header(*file)) else {
                continue;
            };
            match writer_of(fs, file, &folder.join(&name)).map_err(Error::of_opening) {
                Ok(writer) => *report.readable.entry(writer).or_default() += 1,
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error @ Error::Encrypted { .. }) => return Err(error),
                Err(error) => report.unreadable.push(error),
            }
        }
        // An edit may require a feature of a later release.
        let manifest =
            load(&**fs, folder).and_then(|it| it.ok_or_else(|| current_is_missing(folder)));
        if let Err(error @ Error::NewerRelease { .. }) = manifest.map_err(Error::of_opening) {
            report.unreadable.push(error);
        }
        Ok(report)
    }
}

/// Returns the release that wrote the file. Reads the footer of a table too.
fn writer_of(fs: &Arc<dyn Fs>, file: FileName<'_>, path: &Path) -> Result<Release> {
    let mut bytes = [0; HEADER_BYTES];
    let opened = fs.open(path).map_err(|error| Error::io("open", path, error))?;
    let bytes_have = opened.len().map_err(|error| Error::io("read", path, error))?;
    let have = (HEADER_BYTES as u64).min(bytes_have) as usize;
    opened.read_at(&mut bytes[..have], 0).map_err(|error| Error::io("read", path, error))?;
    let header = FileHeader::decode(&bytes[..have]);
    let header = header.map_err(|source| Error::corrupt(path, 0, source))?;
    if let FileName::Table(id) = file {
        let files = TableFiles::one_by_one(Arc::clone(fs), Arc::default());
        let source = files.source_once(path).map_err(|error| Error::io("open", path, error))?;
        TableMetadata::read(&source, id).map_err(|error| table_error(path, error))?;
    }
    Ok(header.writer)
}

/// Returns `true` if the file begins with a file header.
const fn has_header(file: FileName<'_>) -> bool {
    !matches!(file, FileName::Lock | FileName::Stats | FileName::Temporary(_))
}
