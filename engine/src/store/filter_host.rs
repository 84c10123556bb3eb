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
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        FilterPolicy, FilterPolicyKind,
        filters::FilterJob,
        fs::{Call, Fault, FaultFs, MemoryFs, Times},
    };

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

    /// A rebuild that fails while more memory is granted is repeated, as one that failed before.
    #[test]
    fn a_request_during_a_failing_rebuild_repeats_it() {
        let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
        let options = Options::new().fs(faults.clone()).worker_threads(0);
        let db = options.open("db").expect("a store");
        for number in 0..1_000_u32 {
            db.insert(number.to_be_bytes(), "value").expect("there is room");
        }
        db.flush().expect("there is room");
        faults.inject(Fault::new(5, Times::ForGood).calls(&[Call::Create]).suffix(".filter"));
        let policy = FilterPolicy::new(FilterPolicyKind::Bloom).bits_per_key(40.0);
        db.default_keyspace().set_filter_policy(policy).expect("options are stored");
        let (store, filters) = (db.store(), &db.store().filters);
        let before = faults.failures();
        filters.set_bytes_max(store, 1 << 30);
        let next_rebuild = || {
            loop {
                filters.note_changed(BTreeSet::new(), || store.versions.trees().ids().collect());
                match filters.claim(store, true)? {
                    job @ FilterJob::Rebuild(..) => return Some(job),
                    job => filters.run(store, &job).expect("it changes no file"),
                }
            }
        };
        let job = next_rebuild().expect("the filter has other bits than the policy");
        filters.set_bytes_max(store, 2 << 30);
        filters.run(store, &job).expect("the error is reported");
        let again = next_rebuild().expect("there may be more memory");
        filters.run(store, &again).expect("the error is reported");
        assert!(next_rebuild().is_none(), "it is repeated once");
        assert_eq!(faults.failures(), before + 2);
    }
}
