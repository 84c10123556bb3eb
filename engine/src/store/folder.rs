//! Checks the directory of a store, creates it, and locks it.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Error, Options, Result,
    clock::Clock,
    error::LOCK,
    file_name::{FileName, REPAIR, REPLICA},
    fs::{FileLock, Fs, existing},
    manifest::check_no_store,
    options::ReadMode,
};

/// Time between two attempts to lock a store.
const LOCK_RETRY: Duration = Duration::from_millis(5);

/// A longer lock file holds no process id.
const PROCESS_ID_BYTES_MAX: u64 = 16;

/// Locks the store in `folder`.
///
/// # Errors
///
/// [`Error::Locked`] if the store is open, [`Error::Io`].
pub(crate) fn lock_folder(fs: &dyn Fs, folder: &Path) -> Result<Box<dyn FileLock>> {
    let path = FileName::Lock.path(folder);
    fs.lock(&path).map_err(|error| not_locked(fs, folder, path, error))
}

/// Locks the store in `folder` as [`lock_folder`] does, by two attempts: a process that only looks
/// whether the store is open holds the lock for a moment.
///
/// # Errors
///
/// As [`lock_folder`].
pub(super) fn lock_to_write(
    fs: &dyn Fs,
    clock: &dyn Clock,
    folder: &Path,
) -> Result<Box<dyn FileLock>> {
    match lock_folder(fs, folder) {
        Err(Error::Locked { .. }) => {
            clock.sleep(LOCK_RETRY);
            lock_folder(fs, folder)
        }
        locked => locked,
    }
}

/// Locks the store in `folder`, shared with other readers. Returns `None` if the lock file is
/// missing, as in a copy. Creates no file.
///
/// # Errors
///
/// [`Error::Locked`] if a writer has the store open. [`Error::Io`], also if the lock file cannot be
/// read: a writer may have the store open then.
pub(crate) fn lock_to_read(fs: &dyn Fs, folder: &Path) -> Result<Option<Box<dyn FileLock>>> {
    let path = FileName::Lock.path(folder);
    existing(fs.lock_shared(&path)).map_err(|error| not_locked(fs, folder, path, error))
}

fn not_locked(fs: &dyn Fs, folder: &Path, path: PathBuf, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            Error::Locked { path: folder.to_owned(), process: lock_holder(fs, &path) }
        }
        _ => Error::io(LOCK, path, error),
    }
}

/// Returns the process id in the lock file, if it has a readable one.
fn lock_holder(fs: &dyn Fs, path: &Path) -> Option<u32> {
    let file = fs.open(path).ok()?;
    let mut text = vec![0; usize::try_from(file.len().ok()?.min(PROCESS_ID_BYTES_MAX)).ok()?];
    file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

/// Refuses a new store in `to` that would be inside the store in `from`, or contain it.
///
/// # Errors
///
/// [`Error::DirectoriesOverlap`], [`Error::Io`].
pub(crate) fn check_apart(fs: &dyn Fs, from: &Path, to: &Path) -> Result<()> {
    let resolve = |path: &Path| fs.resolve(path).map_err(|error| Error::io("resolve", path, error));
    let (old, new) = (resolve(from)?, resolve(to)?);
    if old.starts_with(&new) || new.starts_with(&old) {
        return Err(Error::DirectoriesOverlap { from: from.to_owned(), to: to.to_owned() });
    }
    Ok(())
}

/// Refuses a directory with files. A missing one is empty.
///
/// # Errors
///
/// [`Error::DirectoryNotEmpty`], [`Error::NotADirectory`], [`Error::Io`].
pub(crate) fn check_empty(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let names = existing(fs.list(folder));
    let names = names.map_err(|error| refused("list", folder, folder, error))?;
    match names.unwrap_or_default().into_iter().next() {
        Some(name) => Err(Error::DirectoryNotEmpty { path: folder.to_owned(), name }),
        None => Ok(()),
    }
}

/// Refuses a directory that holds a store.
///
/// # Errors
///
/// [`Error::StoreExists`], [`Error::Io`].
pub(super) fn check_new(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let path = FileName::Current.path(folder);
    match fs.exists(&path).map_err(|error| refused("look for", &path, folder, error))? {
        true => Err(Error::StoreExists { path: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Extent of the check of the read mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    /// `CURRENT` was read as tables will be.
    Whole,
    /// The lock file was, which may be empty. No other file exists yet.
    Partly,
}

/// Refuses a read mode that the file system does not support. Called before anything is written: a
/// flush that cannot read its table would make the store read-only.
///
/// Some file systems open a file and only refuse its reads or its map, so this reads or maps
/// `CURRENT`. In a new store it takes the lock file instead, and must be called again after the
/// store is created. If only the second call fails, an empty store is left behind.
pub(super) fn check_read_mode(options: &Options, folder: &Path) -> Result<Checked> {
    let check = |path: &Path| {
        let checked = check_file(&*options.fs, options.read_mode, path);
        checked.map_err(|(op, error)| (error.kind(), Error::io(op, path, error)))
    };
    let (checked, extent) = match check(&FileName::Current.path(folder)) {
        Err((io::ErrorKind::NotFound, _)) => (check(&FileName::Lock.path(folder)), Checked::Partly),
        checked => (checked, Checked::Whole),
    };
    checked.map(|()| extent).map_err(|(_, error)| error)
}

/// Reads or maps the file `path` as the table files of `mode` are. An error has the failed call.
fn check_file(fs: &dyn Fs, mode: ReadMode, path: &Path) -> Result<(), (&'static str, io::Error)> {
    match mode {
        ReadMode::Pread => Ok(()),
        ReadMode::Map => {
            let file = fs.open(path).map_err(|error| ("open", error))?;
            file.map().map(drop).map_err(|error| ("map", error))
        }
        ReadMode::Direct => {
            let opened = fs.open_direct(path);
            let file = opened.map_err(|error| ("open for direct reads", error))?;
            match file.read_at(&mut [0], 0) {
                // An empty `CURRENT` is damaged, which recovery reports.
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    Err(("read directly", error))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Returns the error of `op` on `path`, which is in `folder`.
pub(crate) fn refused(op: &'static str, path: &Path, folder: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotADirectory => Error::NotADirectory { path: folder.to_owned() },
        _ => Error::io(op, path, error),
    }
}

/// Refuses a directory without a store. Writes nothing.
///
/// # Errors
///
/// [`Error::NoStore`]; [`Error::Corrupt`] if `CURRENT` is missing and there are data;
/// [`Error::IncompleteReplica`]; [`Error::NotADirectory`]; [`Error::Io`].
pub(super) fn check_store(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let path = FileName::Current.path(folder);
    if fs.exists(&path).map_err(|error| refused("look for", &path, folder, error))? {
        return Ok(());
    }
    check_no_replica(fs, folder)?;
    check_no_store(fs, folder)?;
    Err(Error::NoStore { path: folder.to_owned() })
}

/// Refuses the directory of a replica whose files have not all arrived.
fn check_no_replica(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let path = folder.join(REPLICA);
    match fs.exists(&path).map_err(|error| refused("look for", &path, folder, error))? {
        true => Err(Error::IncompleteReplica { path: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Refuses the new store of a repair that did not end.
///
/// # Errors
///
/// [`Error::IncompleteRepair`], [`Error::NotADirectory`], [`Error::Io`].
pub(super) fn check_no_repair(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let path = folder.join(REPAIR);
    match fs.exists(&path).map_err(|error| refused("look for", &path, folder, error))? {
        true => Err(Error::IncompleteRepair { path: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Refuses the directory of a replica with files of a refresh: its log and its manifest are to be
/// replaced, and with them all writes to them.
///
/// # Errors
///
/// [`Error::IncompleteReplica`], [`Error::Io`].
pub(super) fn check_no_refresh(fs: &dyn Fs, folder: &Path) -> Result<()> {
    match check_no_replica(fs, folder) {
        Err(Error::IncompleteReplica { .. }) => {}
        checked => return checked,
    }
    let names = fs.list(folder).map_err(|error| refused("list", folder, folder, error))?;
    let mut staged = names.iter().filter_map(|name| FileName::parse_staged(name));
    match staged.any(|(name, _)| name == FileName::Current) {
        true => Err(Error::IncompleteReplica { path: folder.to_owned() }),
        false => Ok(()),
    }
}

/// Creates `folder` and its missing parents for a new store, and makes their entries durable.
///
/// Also syncs existing parents: an interrupted attempt may have created them without a sync.
///
/// # Errors
///
/// [`Error::ForeignDirectory`] if it has foreign files, [`Error::IncompleteReplica`],
/// [`Error::NotADirectory`], [`Error::Io`].
pub(super) fn create_dir(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let exists =
        |path: &Path| fs.exists(path).map_err(|error| refused("look for", path, folder, error));
    if exists(&FileName::Current.path(folder))? {
        return Ok(());
    }
    check_no_replica(fs, folder)?;
    if exists(folder)? {
        let names = fs.list(folder).map_err(|error| refused("list", folder, folder, error))?;
        let is_foreign = |name: &String| FileName::parse(name).is_none() && name != REPAIR;
        if let Some(name) = names.into_iter().find(is_foreign) {
            return Err(Error::ForeignDirectory { path: folder.to_owned(), name });
        }
    }
    create_levels(fs, folder).map_err(|error| refused("create", folder, folder, error))
}

/// Creates the absolute path `folder` with its missing parents, and makes their entries durable.
///
/// # Errors
///
/// Errors of `fs`.
pub(crate) fn create_levels(fs: &dyn Fs, folder: &Path) -> io::Result<()> {
    let mut levels = Vec::new();
    for level in folder.ancestors().filter(|level| !level.as_os_str().is_empty()) {
        levels.push((level, fs.exists(level)?));
    }
    if levels.iter().any(|(_, existed)| !existed) {
        fs.create_dir(folder)?;
    }
    for (level, existed) in levels.into_iter().rev() {
        let Some(parent) = level.parent() else { continue };
        match fs.sync_dir(parent) {
            Err(error) if existed && cannot_sync(&error) => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Returns `true` if a directory is not synced because of missing permission, or because its file
/// system has no sync of directories, such as squashfs. No interrupted attempt created its entries.
fn cannot_sync(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported | ReadOnlyFilesystem)
}
