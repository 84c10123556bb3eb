//! A new directory that gets its final name when it is durable.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::output_file::{not_created, parent, partial, rename, sync_directory};
use crate::error::{Error, Result};

/// A new directory. It is `NAME.partial` until [`finish`](Self::finish) returns, so an interrupted
/// program leaves no directory that looks whole.
///
/// Dropping an unfinished directory deletes it with its files. If only the rename fails, the
/// directory is kept.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use sievedb_migrate::export::OutputDirectory;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("files");
/// let output = OutputDirectory::create(&path)?;
/// std::fs::write(output.partial().join("file"), "a")?;
/// assert!(!path.exists());
/// output.finish()?;
/// assert!(path.join("file").exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    partial: PathBuf,
    is_complete: bool,
}

impl OutputDirectory {
    /// Creates the directory `path`, which may exist if it is empty.
    ///
    /// Removes an empty directory at once. If that is not possible, [`finish`](Self::finish) could
    /// not replace it either.
    ///
    /// # Errors
    ///
    /// * [`Error::Exists`]: `path` is a file or has files, or an earlier call has left an
    ///   unfinished directory. Delete the latter if no process is writing to it.
    /// * [`Error::NotReplaceable`]: `path` is a mount point, a symbolic link, or ends with `.`.
    /// * [`Error::Io`]: the operating system refused to create it.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let (path, partial) = (path.as_ref().to_owned(), partial(path.as_ref()));
        check_free(&path)?;
        create_directory(&partial)?;
        let output = Self { path, partial, is_complete: false };
        remove_empty(&output.path)?;
        Ok(output)
    }

    /// Returns the path of the unfinished directory.
    #[must_use]
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Renames the directory to its final name. The caller must have synced its files and
    /// subdirectories.
    ///
    /// # Errors
    ///
    /// * [`Error::NotRenamed`]: the rename failed, or another program has written to `path`
    ///   meanwhile. The complete directory keeps its name `NAME.partial`.
    /// * [`Error::Io`]: the operating system refused a sync. If it was that of the parent
    ///   directory, the directory has its final name, which a crash may revert.
    pub fn finish(mut self) -> Result<()> {
        sync_directory(&self.partial)?;
        self.is_complete = true;
        let renamed = check_free(&self.path).and_then(|()| rename(&self.partial, &self.path));
        renamed.map_err(|error| Error::NotRenamed {
            partial: self.partial.clone(),
            path: self.path.clone(),
            source: Box::new(error),
        })?;
        sync_directory(parent(&self.path))
    }
}

impl Drop for OutputDirectory {
    fn drop(&mut self) {
        if !self.is_complete {
            // If this fails, the name `NAME.partial` shows that the directory is incomplete.
            #[expect(clippy::disallowed_methods, reason = "no directory of an open store")]
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Returns an error unless `path` is absent or an empty directory, which a rename replaces.
fn check_free(path: &Path) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "no directory of an open store")]
    let listed = fs::read_dir(path).map(|mut entries| entries.next().is_none());
    match listed {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotADirectory => {
            Err(Error::io("list", path, error))
        }
        _ => Err(Error::Exists { path: path.to_owned() }),
    }
}

/// Removes the empty directory `path`, if it exists.
fn remove_empty(path: &Path) -> Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::NotReplaceable { path: path.to_owned(), source: Arc::new(error) })
        }
        _ => Ok(()),
    }
}

pub(super) fn create_directory(path: &Path) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "no directory of an open store")]
    fs::create_dir(path).map_err(|error| not_created(path, error))
}
