//! Files that nothing needs any more, until a worker unlinks them.

use std::{mem, path::PathBuf};

use parking_lot::Mutex;

/// Files whose last reader has let go. Filled by drops on any thread, emptied by a worker.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    paths: Mutex<Vec<PathBuf>>,
}

impl ObsoleteFiles {
    /// Adds a file. No manifest names it any more.
    pub(crate) fn push(&self, path: PathBuf) {
        self.paths.lock().push(path);
    }

    /// Adds files. No manifest names them any more.
    pub(crate) fn extend(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.paths.lock().extend(paths);
    }

    /// Whether nothing is to be unlinked.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }

    /// Takes all files.
    pub(crate) fn take(&self) -> Vec<PathBuf> {
        mem::take(&mut self.paths.lock())
    }
}
