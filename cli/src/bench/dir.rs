//! Directory for the stores of a benchmark.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    error::{Error, Result},
    interrupt,
};

/// A directory for the stores of a benchmark.
#[derive(Debug)]
pub(crate) struct BenchDir {
    path: PathBuf,
    /// Removes a temporary directory on drop, also after an error.
    _temporary: Option<TempDir>,
}

impl BenchDir {
    /// Creates the directory `kept` if missing, or a temporary directory, which Ctrl-C removes.
    pub(crate) fn new(kept: Option<&Path>) -> Result<Self> {
        if let Some(path) = kept {
            create(path)?;
            return Ok(Self { path: path.to_owned(), _temporary: None });
        }
        let dir = tempfile::Builder::new().prefix("sieve-bench-").tempdir().map_err(|source| {
            Error::Io { op: "create a directory in", path: std::env::temp_dir(), source }
        })?;
        let path = dir.path().to_owned();
        interrupt::exit_with({
            let path = path.clone();
            move || removed(&path)
        });
        Ok(Self { path, _temporary: Some(dir) })
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path for the new store `name`.
    ///
    /// # Errors
    ///
    /// [`Error::Kept`] if the path exists.
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

/// Removes the temporary directory `path`. Returns a message.
#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn removed(path: &Path) -> String {
    // The benchmark goes on meanwhile, and may create a file.
    match (0..100).any(|_| fs::remove_dir_all(path).is_ok()) {
        true => "the temporary directory was removed".to_owned(),
        false => format!("remove {}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_directory_is_removed() {
        let dir = BenchDir::new(None).unwrap();
        let store = dir.store("a").unwrap();
        create(&store).unwrap();
        assert!(matches!(dir.store("a"), Err(Error::Kept { .. })));
        drop(dir);
        assert!(!store.exists());
    }

    #[test]
    fn named_directory_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        drop(BenchDir::new(Some(&path)).unwrap());
        assert!(path.exists());
    }
}
