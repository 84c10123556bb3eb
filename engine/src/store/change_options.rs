//! Changes the options of a keyspace of an open store. Filters follow in memory at once, in files
//! in the background; other options apply to new tables.

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
    /// Changes the filter policy of a keyspace durably.
    ///
    /// # Errors
    ///
    /// As [`set_options`](Self::set_options).
    pub(crate) fn set_filter_policy(&self, tree: &Arc<Tree>, policy: FilterPolicy) -> Result<()> {
        self.change_options(tree, |options| options.filter_policy(policy))?;
        self.apply_policies();
        Ok(())
    }

    /// Changes the prefix extractor of a keyspace durably. Prefix filters are rebuilt in the
    /// background.
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
        self.filters.make_due();
        self.scheduler.wake();
        self.run_inline();
        Ok(())
    }

    /// Changes all options of a keyspace durably. Filters of present tables are rebuilt in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption),
    /// [`Error::MergeOperatorFixed`](crate::Error::MergeOperatorFixed),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), and as
    /// [`edit_manifest`](Store::edit_manifest).
    pub(crate) fn set_options(&self, tree: &Arc<Tree>, options: KeyspaceOptions) -> Result<()> {
        self.change_options(tree, |_| options)?;
        // Another style may make a compaction due.
        self.scheduler.look_at_all();
        self.apply_policies();
        Ok(())
    }

    fn apply_policies(&self) {
        self.filters.apply_policies(self);
        self.scheduler.wake();
        self.run_inline();
    }

    /// Makes other options of a keyspace durable, then visible.
    fn change_options(
        &self,
        tree: &Arc<Tree>,
        change: impl FnOnce(KeyspaceOptions) -> KeyspaceOptions,
    ) -> Result<()> {
        // No other thread changes options meanwhile.
        let _held = self.filters.hold();
        let present = tree.kept_options();
        let new = change(KeyspaceOptions::clone(&present));
        let new = new.with_functions(&self.options.prefix_functions);
        let new = new.with_operators(&self.options.merge_operators);
        let new = new.with_filters(&self.options.compaction_filters);
        new.validate()?;
        present.merge_operator.check_change(&tree.name(), &new.merge_operator)?;
        let changed = KeyspaceChanged { id: tree.id, options: new.encode() };
        let has_history = new.history.is_some();
        if has_history {
            self.begin_history();
        }
        // A longer history does not bring back what the shorter one has dropped.
        let history_from = || {
            let start = self.history_start(tree);
            has_history.then(|| start.unwrap_or_else(|| self.present()))
        };
        let edit = || VersionEdit {
            keyspaces_changed: vec![changed],
            history_from: history_from().into_iter().map(|from| (tree.id, from)).collect(),
            ..VersionEdit::default()
        };
        self.edit_manifest(
            |_| (!tree.is_dropped()).then(edit),
            |edited| {
                if !edited {
                    return;
                }
                let extractor = new.prefix_extractor.clone();
                // Flushes and compactions that copied the readers before keep no history.
                self.versions.snapshots().exclude(|| {
                    if let Some(from) = history_from() {
                        tree.raise_history_from(from);
                    }
                    tree.set_options(new);
                });
                if extractor != present.prefix_extractor {
                    // Tables about to enter a version do so then.
                    for (_, _, live) in tree.kept_view().version.tables() {
                        self.tables.fit_extractor(live, &extractor);
                    }
                }
            },
        )?;
        tree.check()
    }
}
