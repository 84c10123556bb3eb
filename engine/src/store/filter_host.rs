//! The store as its filters see it.

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
        edited.inspect_err(|_| self.versions.add_uncertain(new_file))
    }

    fn poison(&self, cause: Error) {
        Self::poison(self, cause);
    }

    fn report(&self, event: &Event) {
        self.notify(event);
    }
}
