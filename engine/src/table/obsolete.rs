//! Files that nothing needs any more, until a worker unlinks them.

use std::{
    collections::BTreeSet,
    mem,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{file_name::FileName, fs::Fs};

/// Files whose last reader has let go. Filled by drops on any thread, emptied by a worker.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    paths: Mutex<Vec<PathBuf>>,
    /// Ids of tables that count no more, as long as their files may be there.
    retired: Mutex<BTreeSet<u64>>,
}

impl ObsoleteFiles {
    /// Adds a file. No manifest names it any more.
    pub(crate) fn push(&self, path: PathBuf) {
        if let Some(id) = table_id(&path) {
            self.retire(id);
        }
        self.paths.lock().push(path);
    }

    /// Adds files. No manifest names them any more.
    pub(crate) fn extend(&self, paths: impl IntoIterator<Item = PathBuf>) {
        paths.into_iter().for_each(|path| self.push(path));
    }

    /// Notes that no manifest names the table any more. Its file is added when its last reader lets
    /// go.
    pub(crate) fn retire(&self, table: u64) {
        self.retired.lock().insert(table);
    }

    /// Returns the ids of tables that count no more and whose files may be there, ascending.
    pub(crate) fn retired(&self) -> Vec<u64> {
        self.retired.lock().iter().copied().collect()
    }

    /// Returns whether nothing is to be unlinked.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }

    /// Takes all files.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<PathBuf> {
        mem::take(&mut self.paths.lock())
    }

    /// Unlinks all files. A failure is harmless: the next opening tries again.
    pub(crate) fn unlink(&self, fs: &dyn Fs) {
        let paths = mem::take(&mut *self.paths.lock());
        for path in paths {
            let unlinked = fs.unlink(&path);
            if let Some(id) = table_id(&path).filter(|_| unlinked.is_ok()) {
                self.retired.lock().remove(&id);
            }
        }
    }
}

fn table_id(path: &Path) -> Option<u64> {
    match FileName::parse(path.file_name()?.to_str()?) {
        Some(FileName::Table(id)) => Some(id),
        _ => None,
    }
}
