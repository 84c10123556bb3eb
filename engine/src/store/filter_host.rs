//! Implements `FilterHost` for the store.

use std::{path::PathBuf, sync::Arc};

use super::Store;
use crate::{
    Error, Options, Result,
    filters::FilterHost,
    listener::Event,
    manifest::{ManifestState, VersionEdit},
    read::tree::Tree,
    table::store::TableStore,
};

impl FilterHost for Store {
    fn options(&self) -> &Options {
        &self.options
    }

    fn tables(&self) -> &TableStore {
        &self.tables
    }

    fn keyspaces(&self) -> Vec<Arc<Tree>> {
        self.versions.trees().values().cloned().collect()
    }

    fn keyspace(&self, id: u64) -> Option<Arc<Tree>> {
        self.versions.trees().of_id(id).cloned()
    }

    fn is_ending(&self) -> bool {
        self.scheduler.is_shut_down()
    }

    fn renew_manifest(&self) -> Result<()> {
        Self::renew_manifest(self)
    }

    fn edit(
        &self,
        new_file: Option<PathBuf>,
        change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
        install: impl FnOnce(),
    ) -> Result<bool> {
        let edited = self.edit_manifest(change, |edited| {
            if edited {
                install();
            }
            edited
        });
        edited.inspect_err(|_| self.versions.add_uncertain(&self.tables.obsolete_files, new_file))
    }

    fn poison(&self, cause: Error) {
        Self::poison(self, cause);
    }

    fn report(&self, event: &Event) {
        self.notify(event);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::fs::MemoryFs;

    /// A store whose keyspaces are dropped between two calls.
    struct Dropping<'a>(&'a Store);

    impl FilterHost for Dropping<'_> {
        fn options(&self) -> &Options {
            FilterHost::options(self.0)
        }

        fn tables(&self) -> &TableStore {
            FilterHost::tables(self.0)
        }

        fn keyspaces(&self) -> Vec<Arc<Tree>> {
            Vec::new()
        }

        fn keyspace(&self, id: u64) -> Option<Arc<Tree>> {
            FilterHost::keyspace(self.0, id)
        }

        fn is_ending(&self) -> bool {
            FilterHost::is_ending(self.0)
        }

        fn renew_manifest(&self) -> Result<()> {
            FilterHost::renew_manifest(self.0)
        }

        fn edit(
            &self,
            new_file: Option<PathBuf>,
            change: impl FnOnce(&ManifestState) -> Option<VersionEdit>,
            install: impl FnOnce(),
        ) -> Result<bool> {
            FilterHost::edit(self.0, new_file, change, install)
        }

        fn poison(&self, cause: Error) {
            FilterHost::poison(self.0, cause);
        }

        fn report(&self, event: &Event) {
            FilterHost::report(self.0, event);
        }
    }

    #[test]
    fn a_keyspace_may_be_dropped_while_its_tables_are_admitted() {
        let fs = Arc::new(MemoryFs::with_seed(1));
        let open = || Options::new().fs(fs.clone()).worker_threads(0).open("db").expect("a store");
        let db = open();
        db.insert("key", "value").expect("there is room");
        db.flush().expect("there is room");
        drop(db);
        // No plan was made yet, so no bytes are spare: all keyspaces are planned.
        let db = open();
        let store = db.store();
        let tree = store.versions.trees().get("default").cloned().expect("it is always there");
        let version = tree.kept_view().version;
        let opened: Vec<_> = version.tables().map(|(_, _, live)| Arc::clone(live)).collect();
        assert_eq!(opened.len(), 1);
        assert!(store.filters.admit(&Dropping(store), &tree, &version, &opened));
        assert!(store.filters.admit(store, &tree, &version, &opened));
    }
}
