//! The directory of a cluster of processes, which one process at a time uses.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process,
};

use crate::Result;

/// The locked file in a directory. Contains the id of the process.
const LOCK: &str = "start.lock";

/// Creates a directory and its parents.
pub(crate) fn create(dir: &Path) -> Result<()> {
    named(dir, fs::create_dir_all(dir))
}

/// Creates `dir` if it is missing, and locks it until the returned file is dropped.
///
/// # Errors
///
/// If another process has the lock, or if the file cannot be created.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK);
    loop {
        create(dir)?;
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(&path);
        let mut file = named(&path, file)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let (process, dir) = (fs::read_to_string(&path)?, dir.display());
                return Err(
                    format!("process {process} runs the nodes in {dir}; end it first").into()
                );
            }
            Err(TryLockError::Error(error)) => return named(&path, Err(error)),
        }
        // A start that failed may have removed the file after it was opened.
        let locked = file.metadata()?.ino();
        if fs::metadata(&path).is_ok_and(|metadata| metadata.ino() == locked) {
            file.set_len(0)?;
            write!(file, "{}", process::id())?;
            return Ok(file);
        }
    }
}

/// Removes the file that [`lock`] has created, and the directory unless it is `kept`. The caller
/// has the lock.
pub(crate) fn remove_lock(dir: &Path, kept: bool) {
    let _ = fs::remove_file(dir.join(LOCK));
    if !kept {
        // Fails if it contains a node that another process has created.
        let _ = fs::remove_dir(dir);
    }
}

/// Removes the contents of a directory, and the directory unless it is `kept`.
pub(crate) fn clear(dir: &Path, kept: bool) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    if !kept {
        fs::remove_dir(dir)?;
    }
    Ok(())
}

/// Adds the path and advice to an error.
pub(crate) fn named<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    Ok(result.map_err(|error| {
        format!("cannot use {}: {error}; pass a directory that this user may write", path.display())
    })?)
}
