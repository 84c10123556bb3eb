//! Where the stores of a benchmark lie.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// A folder for the stores of a benchmark.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Removes the folder when it is dropped, also after an error.
    _temporary: Option<TempDir>,
}

impl Folder {
    /// The folder `kept`, which is made if need be; without one, a temporary folder.
    pub(crate) fn new(kept: Option<&Path>) -> Result<Self> {
        if let Some(path) = kept {
            create(path)?;
            return Ok(Self { path: path.to_owned(), _temporary: None });
        }
        let folder =
            tempfile::Builder::new().prefix("sieve-bench-").tempdir().map_err(|source| {
                Error::Io { op: "create a directory in", path: std::env::temp_dir(), source }
            })?;
        Ok(Self { path: folder.path().to_owned(), _temporary: Some(folder) })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the store `name`, which is to be made.
    ///
    /// # Errors
    ///
    /// [`Error::Kept`] if something has this name: its content would spoil the measurement.
    pub(crate) fn store(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        if path.exists() { Err(Error::Kept { path }) } else { Ok(path) }
    }
}

#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn create(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|source| {
        let path = path.to_owned();
        Error::Io { op: "create the directory", path, source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_removed() {
        let folder = Folder::new(None).unwrap();
        let store = folder.store("a").unwrap();
        create(&store).unwrap();
        assert!(matches!(folder.store("a"), Err(Error::Kept { .. })));
        drop(folder);
        assert!(!store.exists());
    }

    #[test]
    fn a_named_folder_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        drop(Folder::new(Some(&path)).unwrap());
        assert!(path.exists());
    }
}
