//! Files of earlier backups that readers still use.

use std::{
    any::Any,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use crate::{FilterRole, file_name::FileName, store::Store, sync::Mutex};

/// A table or blob file in use.
type Reader = Weak<dyn Any + Send + Sync>;

/// Files with the open tables that use them.
#[derive(Debug, Default)]
pub(super) struct LeftFiles(Mutex<BTreeMap<PathBuf, Vec<Reader>>>);

impl LeftFiles {
    /// Adds the files of the visible tables of `store`.
    pub(super) fn add(&self, store: &Store) {
        let mut left = self.0.lock();
        let mut add = |path: PathBuf, reader: Reader| {
            let readers = left.entry(path).or_default();
            let is_same = |other: &Reader| other.as_ptr().cast::<()>() == reader.as_ptr().cast();
            if !readers.iter().any(is_same) {
                readers.push(reader);
            }
        };
        for tree in store.versions.trees().values() {
            for (_, _, live) in tree.kept_view().version.tables() {
                let table = || Arc::downgrade(live) as Reader;
                add(FileName::Table(live.meta.id).path(&store.tables.folder), table());
                for path in FilterRole::ALL.into_iter().filter_map(|role| live.filter_path(role)) {
                    add(path, table());
                }
                for blobs in &live.blobs {
                    add(blobs.path.to_path_buf(), Arc::downgrade(blobs) as Reader);
                }
            }
        }
    }

    /// Returns `true` if a reader may be using the file.
    pub(super) fn is_read(&self, path: &Path) -> bool {
        let left = self.0.lock();
        left.get(path).is_some_and(|readers| readers.iter().any(|it| it.strong_count() > 0))
    }

    /// Removes files without readers.
    pub(super) fn drop_unread(&self) {
        self.0.lock().retain(|_, readers| {
            readers.retain(|reader| reader.strong_count() > 0);
            !readers.is_empty()
        });
    }
}
