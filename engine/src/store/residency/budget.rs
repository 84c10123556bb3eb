//! What happens to filters when the budget, a policy, or the use of tables changes.

use std::{sync::Arc, time::Duration};

use sievedb_sstable::PrefixExtractor;

use super::{Changes, LOAD_BYTES_MAX, Patience, change::LOOK_INTERVAL};
use crate::{
    Result,
    filter_policy::FilterPolicy,
    keyspace_options::KeyspaceOptions,
    manifest::{KeyspaceChanged, ManifestState, VersionEdit},
    memory::MemoryUse,
    prefix_extractor::NamedExtractor,
    read::tree::Tree,
    store::Store,
    sync::{atomic::Ordering::SeqCst, thread},
};

/// How often is looked at most whether filters are within a budget that was cut...
const CUT_LOOKS: u32 = 2_000;
/// ...and how long to wait in between.
const CUT_INTERVAL: Duration = LOOK_INTERVAL.saturating_mul(20);

impl Store {
    /// The background job: brings filters to what the plan says, as far as there is room.
    pub(crate) fn fit_filters(&self) {
        let mut measured = self.residency.change.lock();
        self.residency.is_due.store(false, SeqCst);
        let tables = self.filter_tables();
        let goal = self.filter_bytes_goal();
        let targets = self.plan_filters(&mut measured, &tables, goal);
        let mut changes = Changes::new(&tables, &self.tables.memory, goal, Patience::Short);
        changes.give_up(&targets);
        let is_all = changes.load(&targets, LOAD_BYTES_MAX);
        // What is stuck waits a little.
        if !is_all && !changes.is_stuck {
            self.residency.is_due.store(true, SeqCst);
        }
        self.residency.note_stuck(changes.is_stuck);
        self.tell_unreadable(&tables, changes.unreadable);
    }

    /// Takes from memory what the present budget and policies leave no room for. At return the filters
    /// are within them, but for what a lookup holds that lasts longer than some seconds: no wait is
    /// without end, since that lookup may be the caller's, or a listener may keep a table from its version.
    fn cut_filters(&self) {
        let memory = &self.tables.memory;
        for _ in 0..CUT_LOOKS {
            let mut measured = self.residency.change.lock();
            let tables = self.filter_tables();
            let goal = self.residency.bytes_max.load(SeqCst);
            let targets = self.plan_filters(&mut measured, &tables, goal);
            // Until they fit, what was allowed before bounds the copies.
            let before = memory.limit(MemoryUse::Filters);
            let mut changes = Changes::new(&tables, memory, before, Patience::Long);
            changes.give_up(&targets);
            changes.drop_beyond(&targets, goal);
            if memory.bytes(MemoryUse::Filters) <= goal {
                memory.set_limit(MemoryUse::Filters, goal);
                let mut changes = Changes::new(&tables, memory, goal, Patience::Short);
                changes.load(&targets, LOAD_BYTES_MAX);
                self.residency.note_stuck(changes.is_stuck);
                self.tell_unreadable(&tables, changes.unreadable);
                return;
            }
            drop(measured);
            // The rest is that of tables which are about to enter a version, or which a reader has not
            // let go of yet.
            thread::sleep(CUT_INTERVAL);
        }
        // All that there is fits: what is held goes when it is let go of, and nothing comes before that.
        let _change = self.residency.change.lock();
        memory.set_limit(MemoryUse::Filters, self.residency.bytes_max.load(SeqCst));
    }

    /// Bounds the filters of all keyspaces together. At return they are within the bound, but for what
    /// [`cut_filters`](Self::cut_filters) could not wait for.
    pub(in crate::store) fn set_filter_bytes_max(&self, bytes_max: u64) {
        let memory = &self.tables.memory;
        self.residency.bytes_max.store(bytes_max, SeqCst);
        if bytes_max < memory.limit(MemoryUse::Filters) {
            self.cut_filters();
        } else {
            let _change = self.residency.change.lock();
            // Not `bytes_max`: another thread may have cut it since.
            memory.set_limit(MemoryUse::Filters, self.residency.bytes_max.load(SeqCst));
        }
        self.look_at_filters();
    }

    /// Changes what is asked of the filters of a keyspace, for good.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Store::edit_manifest).
    pub(crate) fn set_filter_policy(&self, tree: &Arc<Tree>, policy: FilterPolicy) -> Result<()> {
        tree.options.clone().filter_policy(policy).validate()?;
        self.change_options(
            tree,
            |options| options.filter_policy(policy),
            || tree.set_filter_policy(policy),
        )?;
        self.cut_filters();
        self.look_at_filters();
        Ok(())
    }

    /// Changes what finds the prefixes of a keyspace, for good. Prefix filters of tables are built anew in
    /// the background.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Store::edit_manifest).
    pub(crate) fn set_prefix_extractor(
        &self,
        tree: &Arc<Tree>,
        extractor: Option<PrefixExtractor>,
    ) -> Result<()> {
        let new = extractor.map_or(NamedExtractor::None, NamedExtractor::Present);
        let with =
            |options: KeyspaceOptions| KeyspaceOptions { prefix_extractor: new.clone(), ..options };
        with(tree.options.clone()).validate()?;
        // Before the manifest is locked: a change of filters that is under way may take long, and the next
        // segment of the log, for which all writes wait, needs the manifest.
        let change = self.residency.change.lock();
        let changed = self.change_options(tree, with, || {
            tree.set_prefix_extractor(new.clone());
            // Those that are about to enter a version look at the extractor when they do.
            for (_, _, live) in tree.kept_view().version.tables() {
                self.tables.fit_extractor(live, &new);
            }
        });
        drop(change);
        changed?;
        self.look_at_filters();
        Ok(())
    }

    /// Makes other options of a keyspace durable, and then calls `install`.
    fn change_options(
        &self,
        tree: &Arc<Tree>,
        change: impl FnOnce(KeyspaceOptions) -> KeyspaceOptions,
        install: impl FnOnce(),
    ) -> Result<()> {
        let edit = |_: &ManifestState| {
            // The present ones: nobody else changes them while the manifest is locked.
            let options = change(tree.present_options()).encode();
            let changed = KeyspaceChanged { id: tree.id, options };
            let edit = VersionEdit { keyspaces_changed: vec![changed], ..VersionEdit::default() };
            (!tree.is_dropped()).then_some(edit)
        };
        self.edit_manifest(edit, |edited| {
            if edited {
                install();
            }
        })?;
        tree.check()
    }

    /// Has the background job look at the filters.
    fn look_at_filters(&self) {
        self.residency.is_due.store(true, SeqCst);
        self.background.wake();
        self.run_inline();
    }
}
