//! Files that nothing needs any more, until a worker unlinks them.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    io, mem,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{file_name::FileName, fs::Fs};

/// Files whose last reader has let go. Filled by drops on any thread, emptied by a worker.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    paths: Mutex<Vec<PathBuf>>,
    retired: Mutex<Retired>,
}

/// Ids of obsolete tables whose files may exist.
#[derive(Debug, Default)]
struct Retired {
    ids: BTreeSet<u64>,
    /// Those of them whose unlink may not be durable.
    unlinked: BTreeSet<u64>,
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

    /// Records that no manifest names the table. Its file is added when it has no reader left.
    pub(crate) fn retire(&self, table: u64) {
        self.retired.lock().ids.insert(table);
    }

    /// Returns the ids of obsolete tables whose files may exist, ascending.
    pub(crate) fn retired(&self) -> Vec<u64> {
        self.retired.lock().ids.iter().copied().collect()
    }

    /// Returns the ids of retired tables whose unlink is durable after the next sync of the
    /// directory.
    pub(crate) fn unlinked(&self) -> Vec<u64> {
        self.retired.lock().unlinked.iter().copied().collect()
    }

    /// Forgets tables whose unlink is durable.
    pub(crate) fn forget(&self, tables: &[u64]) {
        let mut retired = self.retired.lock();
        for id in tables {
            retired.ids.remove(id);
            retired.unlinked.remove(id);
        }
    }

    /// Returns whether there is no file to unlink.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }

    /// Takes all files.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn take(&self) -> Vec<PathBuf> {
        mem::take(&mut self.paths.lock())
    }

    /// Unlinks a file that no manifest names.
    pub(crate) fn unlink_now(&self, fs: &dyn Fs, path: &Path) {
        let id = table_id(path);
        id.iter().for_each(|&id| self.retire(id));
        let unlinked = fs.unlink(path);
        let is_gone =
            unlinked.map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true);
        if let Some(id) = id.filter(|_| is_gone) {
            self.retired.lock().unlinked.insert(id);
        }
    }

    /// Unlinks all files. A failure is harmless: the next opening tries again.
    pub(crate) fn unlink(&self, fs: &dyn Fs) {
        let mut paths = mem::take(&mut *self.paths.lock());
        // The last table of a group goes first: it vouches for the others.
        paths.sort_unstable_by_key(|path| Reverse(table_id(path)));
        paths.iter().for_each(|path| self.unlink_now(fs, path));
    }
}

fn table_id(path: &Path) -> Option<u64> {
    match FileName::parse(path.file_name()?.to_str()?) {
        Some(FileName::Table(id)) => Some(id),
        _ => None,
    }
}
