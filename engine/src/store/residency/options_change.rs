//! The options of a keyspace are changed while the store is open.
//!
//! Here, beside the filters, because they are what follows: at once in memory, by the background
//! job in files. All else holds for tables that are written from then on.

use std::sync::Arc;

use sievedb_sstable::PrefixExtractor;

use crate::{
    Result,
    filter_policy::FilterPolicy,
    keyspace_options::KeyspaceOptions,
    manifest::{KeyspaceChanged, VersionEdit},
    read::tree::Tree,
    store::Store,
};

impl Store {
    /// Changes what is asked of the filters of a keyspace, for good.
    ///
    /// # Errors
    ///
    /// As [`set_options`](Self::set_options).
    pub(crate) fn set_filter_policy(&self, tree: &Arc<Tree>, policy: FilterPolicy) -> Result<()> {
        self.change_options(tree, |options| options.filter_policy(policy))?;
        self.cut_filters();
        self.look_at_filters();
        Ok(())
    }

    /// Changes what finds the prefixes of a keyspace, for good. Prefix filters of tables are built
    /// anew in the background.
    ///
    /// # Errors
    ///
    /// As [`set_options`](Self::set_options).
    pub(crate) fn set_prefix_extractor(
        &self,
        tree: &Arc<Tree>,
        extractor: Option<PrefixExtractor>,
    ) -> Result<()> {
        self.change_options(tree, |options| options.prefix_extractor(extractor))?;
        self.look_at_filters();
        Ok(())
    }

    /// Changes all options of a keyspace, for good. Filters of tables that there are are rebuilt
    /// in the background.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), and as
    /// [`edit_manifest`](Store::edit_manifest).
    pub(crate) fn set_options(&self, tree: &Arc<Tree>, options: KeyspaceOptions) -> Result<()> {
        self.change_options(tree, |_| options)?;
        self.cut_filters();
        self.look_at_filters();
        Ok(())
    }

    /// Makes other options of a keyspace durable, and puts them in place.
    fn change_options(
        &self,
        tree: &Arc<Tree>,
        change: impl FnOnce(KeyspaceOptions) -> KeyspaceOptions,
    ) -> Result<()> {
        // Before the manifest is locked: a change of filters that is in flight may take long, and
        // the next segment of the log, for which all writes wait, needs the manifest.
        let _change = self.residency.lock_change();
        // Nobody else changes them meanwhile.
        let present = tree.kept_options();
        let new = change(KeyspaceOptions::clone(&present));
        let new = new.with_functions(&self.options.prefix_functions);
        new.validate()?;
        let changed = KeyspaceChanged { id: tree.id, options: new.encode() };
        let edit = VersionEdit { keyspaces_changed: vec![changed], ..VersionEdit::default() };
        self.edit_manifest(
            |_| (!tree.is_dropped()).then_some(edit),
            |edited| {
                if !edited {
                    return;
                }
                let extractor = new.prefix_extractor.clone();
                tree.set_options(new);
                if extractor != present.prefix_extractor {
                    // Those that are about to enter a version look at the extractor when they do.
                    for (_, _, live) in tree.kept_view().version.tables() {
                        self.tables.fit_extractor(live, &extractor);
                    }
                }
            },
        )?;
        tree.check()
    }
}
