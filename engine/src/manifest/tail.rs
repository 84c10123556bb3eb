//! Reads the edits of a manifest while another process appends to it.

use std::{path::PathBuf, sync::Arc};

use sievedb_format::{Corruption, FileHeader, FileKind};

use super::{current::Current, edit::VersionEdit, file::ManifestFile, load, load::Loaded};
use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    log::{Next, Reader, Record, RecordType},
    manifest::ManifestState,
};

/// The part of the current manifest read so far.
#[derive(Debug)]
pub(crate) struct ManifestTail {
    fs: Arc<dyn Fs>,
    folder: PathBuf,
    reader: Reader,
    loaded: Loaded,
}

impl ManifestTail {
    /// Continues after the `loaded` part.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], also if the file was replaced meanwhile; [`Error::Corrupt`] if it is another
    /// file.
    pub(crate) fn new(fs: Arc<dyn Fs>, folder: PathBuf, loaded: Loaded) -> Result<Self> {
        let (id, store_id) = (loaded.end.file_id, loaded.state.store_id);
        let path = FileName::Manifest(id).path(&folder);
        let file = fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
        let mut reader = Reader::new(file, path, id)?;
        reader.check_header(&FileHeader::new(FileKind::Manifest, store_id, id))?;
        if reader.secret() != loaded.secret {
            let (what, expected) = ("secret of the manifest", loaded.secret);
            let mismatch = Corruption::Mismatch { what, expected, found: reader.secret() };
            return Err(reader.corrupt(0, mismatch));
        }
        reader.resume(loaded.end.offset);
        Ok(Self { fs, folder, reader, loaded })
    }

    /// Returns the state after all edits read so far.
    pub(crate) const fn state(&self) -> &ManifestState {
        &self.loaded.state
    }

    /// Returns the part of the manifest read so far, read-only.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn file(&self) -> Result<ManifestFile> {
        ManifestFile::reopen(Arc::clone(&self.fs), self.folder.clone(), self.loaded.clone())
    }

    /// Reads new edits, or the manifest that has replaced this one. Returns the previous state if
    /// anything changed.
    ///
    /// A partially written record ends the file for now.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`], also if files were replaced meanwhile. A part may have
    /// been read then.
    pub(crate) fn read(&mut self) -> Result<Option<ManifestState>> {
        let missing = || Error::NoStore { path: self.folder.clone() };
        let current = Current::read(&*self.fs, &self.folder)?.ok_or_else(missing)?;
        if current.manifest.file_id != self.loaded.end.file_id {
            let loaded = load(&*self.fs, &self.folder)?.ok_or_else(missing)?;
            let next = Self::new(Arc::clone(&self.fs), self.folder.clone(), loaded)?;
            let before = std::mem::replace(self, next);
            return Ok(Some(before.loaded.state));
        }
        let mut before = None;
        self.reader.reload()?;
        while let Next::Record(record) = self.reader.next()? {
            if !matches!(record.record_type, RecordType::Full) {
                continue;
            }
            before.get_or_insert_with(|| self.loaded.state.clone());
            let applied = self.apply(&record);
            applied.map_err(|reason| self.reader.corrupt(record.offset, reason))?;
            self.loaded.end.offset = self.reader.offset();
        }
        Ok(before)
    }

    fn apply(&mut self, record: &Record) -> Result<(), Corruption> {
        let (expected, found) = (self.loaded.edits + 1, record.sequence);
        if found != expected {
            return Err(Corruption::Mismatch { what: "number of an edit", expected, found });
        }
        self.loaded.edits = found;
        self.loaded.state.apply(&VersionEdit::decode(&record.payload)?)
    }
}
