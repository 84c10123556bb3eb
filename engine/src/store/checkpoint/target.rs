//! The directory of a checkpoint or a restored backup while it is created.
//!
//! `CURRENT` is written last, when everything else is durable: without it the directory does not
//! open as a store. It is locked meanwhile.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use xxhash_rust::xxh3::Xxh3;

use super::parts::read_parts;
use crate::{
    Error, Result,
    encryption::StoredFs,
    error::SYNC,
    file_name::FileName,
    fs::{FileLock, Fs, ReadFile},
    log::{Position, Reader, Writer},
    manifest::{ManifestFile, ManifestState, VersionEdit},
    store::folder::{check_apart, check_empty, create_dir, lock_folder},
    store::log_state::corrupt_state,
    wal::{
        chain::Segments,
        replay::{ReplayedBatch, replay},
        segment::NewSegment,
    },
};

/// An incomplete store. Drop removes its files.
#[derive(Debug)]
pub(crate) struct Target {
    /// File system of the files that the store writes itself.
    fs: Arc<dyn Fs>,
    /// The same, for files as they are stored.
    files: StoredFs,
    folder: PathBuf,
    lock: Option<Box<dyn FileLock>>,
    is_whole: bool,
    pub(super) files_linked: u64,
    pub(super) files_copied: u64,
    pub(super) bytes_copied: u64,
}

impl Target {
    /// Creates the directory `to` for a copy of the directory `from`, and locks it. `from` is
    /// `None` for a remote set.
    ///
    /// # Errors
    ///
    /// [`Error::DirectoriesOverlap`], [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`],
    /// [`Error::Locked`], [`Error::Io`].
    pub(crate) fn create(files: StoredFs, from: Option<&Path>, to: &Path) -> Result<Self> {
        let fs = files.logical();
        let folder = fs.absolute(to).map_err(|error| Error::io("resolve", to, error))?;
        from.map_or(Ok(()), |from| check_apart(&*fs, from, &folder))?;
        check_empty(&*fs, &folder)?;
        create_dir(&*fs, &folder)?;
        let lock = lock_folder(&*fs, &folder)?;
        let names = fs.list(&folder).map_err(|error| {
            let _ = fs.unlink(&FileName::Lock.path(&folder));
            Error::io("list", &folder, error)
        })?;
        let lock_name = FileName::Lock.to_string();
        if let Some(name) = names.into_iter().find(|name| *name != lock_name) {
            // Another checkpoint was created before this one got the lock.
            return Err(Error::DirectoryNotEmpty { path: folder, name });
        }
        let (files_linked, files_copied, bytes_copied) = Default::default();
        let (lock, is_whole) = (Some(lock), false);
        Ok(Self { fs, files, folder, lock, is_whole, files_linked, files_copied, bytes_copied })
    }

    /// Adds the files of a store to the directory `folder`, whose lock the caller holds. `files`
    /// maps to names that do not exist. A drop keeps the files.
    pub(crate) fn beside(files: StoredFs, folder: &Path) -> Self {
        let (fs, folder) = (files.logical(), folder.to_owned());
        let (files_linked, files_copied, bytes_copied) = Default::default();
        let (lock, is_whole) = (None, true);
        Self { fs, files, folder, lock, is_whole, files_linked, files_copied, bytes_copied }
    }

    /// Adds a file of the directory `from` by a hard link, or else a copy of its first `bytes`
    /// bytes, which never change; `None` for all of them. Calls `check_needed` before each part
    /// that is copied.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; errors of `check_needed`.
    pub(super) fn add(
        &mut self,
        name: FileName<'_>,
        from: &Path,
        bytes: Option<u64>,
        check_needed: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        check_needed()?;
        let (source, path) = (name.path(from), name.path(&self.folder));
        match self.fs.link(&source, &path) {
            Ok(()) => {
                self.files_linked += 1;
                Ok(())
            }
            Err(error) if can_be_copied(error.kind()) => self.copy(name, from, bytes, check_needed),
            Err(error) => Err(Error::io("link", source, error)),
        }
    }

    /// As [`add`](Self::add), but always copies.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub(super) fn copy(
        &mut self,
        name: FileName<'_>,
        from: &Path,
        bytes: Option<u64>,
        check_needed: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let (source, path) = (name.path(from), name.path(&self.folder));
        let opened = self.files.open(&source, bytes);
        let (file, bytes) = opened.map_err(|error| Error::io("open", &source, error))?;
        let stored = &**self.files.stored();
        write_parts(stored, &path, &*file, &source, bytes, |_| check_needed())?;
        self.files_copied += 1;
        self.bytes_copied += bytes;
        Ok(())
    }

    /// Adds the file `name` with the first `bytes` bytes of `file`, which is at `source`. Returns
    /// the xxh3_64 of these bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn write(
        &self,
        name: &str,
        file: &dyn ReadFile,
        source: &Path,
        bytes: u64,
    ) -> Result<u64> {
        let path = self.folder.join(name);
        let mut hasher = Xxh3::new();
        write_parts(&*self.fs, &path, file, source, bytes, |part| {
            hasher.update(part);
            Ok(())
        })?;
        Ok(hasher.digest())
    }

    /// Adds an empty log segment after the others, if there are any. It records the end of the
    /// previous segment, to which the store may append. Adds it to `state`, too.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(super) fn end_log(&self, state: &mut ManifestState) -> Result<()> {
        if state.logs.is_empty() { Ok(()) } else { self.add_segment(state, |_| Ok(())) }
    }

    /// Adds a segment of the log behind the others. `append` writes its records and makes them
    /// durable. Adds it to `state`, too.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], errors of `append`.
    pub(crate) fn add_segment(
        &self,
        state: &mut ManifestState,
        append: impl FnOnce(&mut Writer) -> Result<()>,
    ) -> Result<()> {
        let (store_id, id, mark) = (state.store_id, state.next_file_id, state.log_mark);
        let manifest = Position { file_id: id + 1, offset: 0 };
        let previous = (!state.logs.is_empty()).then_some(mark);
        let segment = NewSegment { store_id, id, manifest, previous, mark };
        let mut writer = segment.create(&*self.fs, &self.folder)?;
        append(&mut writer)?;
        let edit = VersionEdit {
            next_file_id: Some(id + 1),
            logs_created: vec![(id, writer.secret())],
            log_mark: Some(writer.position()),
            ..VersionEdit::default()
        };
        state.apply(&edit).map_err(|source| corrupt_state(&self.folder, source))
    }

    /// Passes the batches of the log to `apply`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`]; errors of `apply`.
    pub(crate) fn replay(
        &self,
        state: &ManifestState,
        apply: impl FnMut(ReplayedBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let named: Vec<_> = state.logs.keys().copied().collect();
        let segments = Segments {
            fs: &self.fs,
            folder: &self.folder,
            store_id: state.store_id,
            named: &named,
            secrets: &state.logs,
            floor: state.log_floor,
            on_disk: &named,
            written: None,
        };
        replay(&segments, state.log_mark, apply).map(drop)
    }

    /// Returns the ids of the blob files with values of the log.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`].
    pub(crate) fn value_files(&self, state: &ManifestState) -> Result<BTreeSet<u64>> {
        let mut files = BTreeSet::new();
        for &id in state.logs.keys() {
            let path = FileName::Log(id).path(&self.folder);
            let file = self.fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
            let mut reader = Reader::new(file, path, id)?;
            // Damage is found by the replay.
            if reader.read_header()?.is_ok() {
                files.extend(reader.referenced_files()?);
            }
        }
        Ok(files)
    }

    /// Writes the manifest, then `CURRENT`. All files are durable before it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub(crate) fn finish(&mut self, state: ManifestState) -> Result<()> {
        let id = state.next_file_id;
        let manifest = ManifestFile::create(Arc::clone(&self.fs), self.folder.clone(), id, state)?;
        // The first open continues manifest and log, as after a clean close.
        manifest.close();
        self.is_whole = true;
        Ok(())
    }

    /// Returns the lock of a [finished](Self::finish) store.
    pub(crate) fn into_lock(mut self) -> Option<Box<dyn FileLock>> {
        self.lock.take()
    }

    /// Removes all files. A failure leaves some, which do not open as a store.
    fn clear(&self) {
        let unlink = |name: FileName<'_>| {
            let _ = self.fs.unlink(&name.path(&self.folder));
        };
        // First: without it the others are no store.
        unlink(FileName::Current);
        let names = self.fs.list(&self.folder).unwrap_or_default();
        let files = names.iter().filter_map(|name| FileName::parse(name));
        files.filter(|&name| name != FileName::Lock).for_each(unlink);
        unlink(FileName::Lock);
    }
}

/// Creates the file `path` with the first `bytes` bytes of `file`, which is at `source`. Calls
/// `on_part` with each part before it is written.
///
/// # Errors
///
/// [`Error::Io`], errors of `on_part`.
pub(crate) fn write_parts(
    fs: &dyn Fs,
    path: &Path,
    file: &dyn ReadFile,
    source: &Path,
    bytes: u64,
    mut on_part: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let copy = fs.create(path).map_err(|error| Error::io("create", path, error))?;
    read_parts(file, source, bytes, |part| {
        on_part(part)?;
        copy.append(part).map_err(|error| Error::io("append to", path, error))
    })?;
    copy.sync_data().map_err(|error| Error::io(SYNC, path, error))
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_whole {
            self.clear();
        }
        self.lock = None;
    }
}

/// Returns `true` if a file may be copied after a link failed. The causes: another file system, a
/// file system without links, too many links, or no permission.
const fn can_be_copied(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(error, CrossesDevices | PermissionDenied | TooManyLinks | Unsupported)
}
