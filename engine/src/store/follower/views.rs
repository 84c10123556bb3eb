//! Makes visible what a follower has read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sievedb_format::SequenceNumber;

use super::{
    Follower,
    tail::{Step, Tail},
};
use crate::{
    FilterRole, KeyspaceOptions, Result,
    history_length::HistoryStart,
    manifest::KeyspaceState,
    planted::PlantedBug,
    read::{
        tree::Tree,
        view::{KeptView, PlacedMemtable},
    },
    store::{
        Store,
        log_state::{check_operator, corrupt_state, present_options},
        replayed_memtables::ReplayedMemtables,
    },
    table::{LiveTable, TableMeta},
    version::Version,
};

/// The next view of a keyspace.
struct Next {
    tree: Arc<Tree>,
    is_new: bool,
    /// The newest first. `None` if the present ones remain.
    memtables: Option<Vec<Arc<PlacedMemtable>>>,
    version: Option<Arc<Version>>,
    /// Tables of the version whose filters must be loaded.
    to_load: Vec<Arc<LiveTable>>,
    /// These filters had room.
    fits: bool,
    options: Option<KeyspaceOptions>,
    history_from: HistoryStart,
}

impl Store {
    /// Makes the entries of a step visible. The tables remain.
    pub(super) fn show_step(&self, follower: &Follower, step: &Step<'_>) {
        for (&id, memtables) in step.entries {
            let tree = self.versions.trees().of_id(id).cloned();
            let tree = tree.filter(|tree| !shows(&tree.view_seldom(), memtables.all()));
            // Before they are visible: a reader may load the view just after.
            tree.into_iter().for_each(|tree| drop(tree.replace(Some(memtables.all()), None, 0)));
        }
        // Before it is visible: a change stream takes what is missing for failed writes.
        *follower.segments.lock() = step.segments.to_vec();
        self.raise_visible(self.shown_up_to(step.last_sequence));
        self.writer.publish().notify();
        if self.tables.memory.is_fit_due() {
            self.tables.fit_cache();
        }
    }

    /// Raises the visible sequence number to `last`.
    fn raise_visible(&self, last: SequenceNumber) {
        let shown = self.writer.visible();
        // A replica has the times of its backup.
        if self.options.follow && last > shown {
            self.versions.note_shown(shown);
        }
        self.writer.publish().advance(last);
    }

    fn shown_up_to(&self, last: SequenceNumber) -> SequenceNumber {
        if self.options.has_bug(PlantedBug::ShowHalfBatch) {
            return (last - last % 2).max(self.writer.visible());
        }
        last
    }

    /// Makes what `tail` has read visible, at once for snapshots.
    ///
    /// # Errors
    ///
    /// Errors of opening tables. Nothing has changed then, except places of filters.
    pub(super) fn show(&self, follower: &Follower, tail: &mut Tail) -> Result<()> {
        let manifest = tail.manifest.file()?;
        let mut all = Vec::with_capacity(tail.state.keyspaces.len());
        for (&id, keyspace) in &tail.state.keyspaces {
            let shown = tail.shown.as_ref().and_then(|shown| shown.keyspaces.get(&id));
            all.push(self.next_view(id, keyspace, shown, tail.memtables.get(&id))?);
        }
        let last = self.shown_up_to(tail.last_sequence);
        self.versions.follow_manifest(manifest, self.options.follow);
        // Before it is visible: a change stream takes what is missing for failed writes.
        *follower.segments.lock() = tail.segments().to_vec();
        let mut replaced_versions = Vec::new();
        self.versions.snapshots().keep_before_refresh(|snapshots_from| {
            // First: the tables may lack versions that only older readers see.
            self.raise_visible(last);
            let mut before = Vec::new();
            for next in &mut all {
                next.tree.raise_history_from(next.history_from);
                let (memtables, version) = (next.memtables.take(), next.version.take());
                if memtables.is_some() || version.is_some() {
                    let memtables = memtables.as_deref();
                    let replaced = next.tree.replace(memtables, version.clone(), snapshots_from);
                    if let Some(version) = version {
                        replaced_versions.push((Arc::clone(&replaced.version), version));
                    }
                    before.push((next.tree.id, replaced));
                }
            }
            before
        });
        replaced_versions.extend(self.change_trees(tail, &mut all));
        self.writer.publish().notify();
        for next in all.iter_mut().filter(|next| next.is_new && !next.to_load.is_empty()) {
            let version = next.tree.kept_view().version;
            next.fits = self.filters.admit(self, &next.tree, &version, &next.to_load);
            next.tree.refresh_filters();
        }
        let has_removed = self.let_go_of_removed(&replaced_versions);
        // Only now: the filters of removed tables had the room.
        let fits = all.iter().all(|next| next.fits);
        self.filters.note_installed(self, fits, has_removed);
        if self.tables.memory.is_fit_due() {
            self.tables.fit_cache();
        }
        tail.shown = Some(tail.state.clone());
        Ok(())
    }

    /// Prepares the next view of the keyspace `id`, whose visible state is `shown`, if it is known.
    fn next_view(
        &self,
        id: u64,
        keyspace: &Arc<KeyspaceState>,
        shown: Option<&Arc<KeyspaceState>>,
        memtables: Option<&ReplayedMemtables>,
    ) -> Result<Next> {
        let present = self.versions.trees().of_id(id).cloned();
        let is_new = present.is_none();
        let is_same = shown.is_some_and(|shown| Arc::ptr_eq(shown, keyspace));
        let mut options = None;
        if is_new || shown.is_none_or(|shown| shown.options != keyspace.options) {
            let found = present_options(&self.options, &keyspace.name, &keyspace.options);
            let found = found.map_err(|it| corrupt_state(&self.tables.folder, it))?;
            check_operator(&keyspace.name, &keyspace.options, &found)?;
            options = Some(found);
        }
        let tree = match (present, &options) {
            (Some(tree), _) => tree,
            (None, options) => Arc::new(Tree::new(
                id,
                keyspace.name.clone(),
                options.clone().unwrap_or_default(),
                Version::default(),
                Arc::clone(&self.tables.memory),
                Arc::clone(self.versions.trees().changed()),
            )),
        };
        let view = tree.kept_view();
        let memtables = memtables.map_or(&[][..], |memtables| memtables.all());
        let memtables = (!shows(&view, memtables)).then(|| memtables.to_vec());
        let mut next = Next {
            tree,
            is_new,
            memtables,
            version: None,
            to_load: Vec::new(),
            fits: true,
            options,
            history_from: keyspace.history_from,
        };
        if !is_same {
            self.add_version(&mut next, keyspace, &view.version)?;
        }
        Ok(next)
    }

    /// Opens the tables that `present` lacks, and loads their filters and those that the writer has
    /// rebuilt.
    fn add_version(
        &self,
        next: &mut Next,
        keyspace: &KeyspaceState,
        present: &Version,
    ) -> Result<()> {
        let places: BTreeMap<_, _> =
            present.tables().map(|(level, run, live)| (live.meta.id, (level, run, live))).collect();
        let is_present = |meta: &Arc<TableMeta>| {
            places.get(&meta.id).is_some_and(|&(level, run, live)| {
                (level, run) == (meta.level, meta.run) && has_filters_of(live, meta)
            })
        };
        let metas = || keyspace.tables.values();
        if places.len() == keyspace.tables.len() && metas().all(is_present) {
            return Ok(());
        }
        let options = next.options.clone().map_or_else(|| next.tree.kept_options(), Arc::new);
        let mut tables = Vec::with_capacity(keyspace.tables.len());
        for meta in metas() {
            let live = match places.get(&meta.id) {
                Some((_, _, live)) if has_filters_of(live, meta) => Arc::clone(live),
                Some((_, _, live)) => {
                    let _held = self.filters.hold();
                    self.tables.follow_filters(live, meta, &options.prefix_extractor);
                    // Also if this refresh fails.
                    self.filters.make_due();
                    next.to_load.push(Arc::clone(live));
                    Arc::clone(live)
                }
                None => {
                    let live = Arc::new(self.tables.open(&options, Arc::clone(meta))?);
                    next.to_load.push(Arc::clone(&live));
                    live
                }
            };
            tables.push((meta.level, meta.run, live));
        }
        let version = Version::new(tables);
        if !next.to_load.is_empty() {
            self.tables.fit_cache();
            // In memory before lookups see their tables. Those of new keyspaces follow.
            next.fits = self.filters.admit(self, &next.tree, &version, &next.to_load);
        }
        next.version = Some(Arc::new(version));
        Ok(())
    }

    /// Drops the filters of the tables that the later one of each two versions lacks: snapshots and
    /// iterators that keep the tables need none. Returns `true` if there are such tables.
    fn let_go_of_removed(&self, versions: &[(Arc<Version>, Arc<Version>)]) -> bool {
        let _held = self.filters.hold();
        let mut has_removed = false;
        for (before, after) in versions {
            let kept: BTreeSet<u64> = after.tables().map(|(_, _, live)| live.meta.id).collect();
            let removed = before.tables().map(|(_, _, live)| live);
            for live in removed.filter(|live| !kept.contains(&live.meta.id)) {
                live.let_go_of_memory();
                has_removed = true;
            }
        }
        has_removed
    }

    /// Changes names, options and the list of keyspaces. Returns the versions of dropped keyspaces,
    /// each with an empty one.
    fn change_trees(&self, tail: &Tail, all: &mut [Next]) -> Vec<(Arc<Version>, Arc<Version>)> {
        for next in &mut *all {
            let Some(keyspace) = tail.state.keyspaces.get(&next.tree.id) else { continue };
            let tree = &next.tree;
            if tree.renamed() != keyspace.renamed || *tree.name() != keyspace.name {
                tree.set_name(keyspace.name.clone(), keyspace.renamed);
            }
            if let Some(options) = next.options.take().filter(|_| !next.is_new) {
                tree.set_options(options);
                let extractor = &tree.options().prefix_extractor;
                let _held = self.filters.hold();
                self.filters.make_due();
                for (_, _, live) in tree.kept_view().version.tables() {
                    self.tables.fit_extractor(live, extractor);
                }
            }
        }
        let before: Vec<_> = self.versions.trees().values().cloned().collect();
        let trees: Vec<_> = all.iter().map(|next| Arc::clone(&next.tree)).collect();
        self.versions.follow_trees(&trees);
        let mut dropped = Vec::new();
        for tree in before {
            if tail.state.keyspaces.contains_key(&tree.id) {
                continue;
            }
            tree.mark_dropped();
            self.versions.snapshots().forget_keyspace(tree.id);
            let replaced = tree.replace(Some(&[]), Some(Arc::default()), 0);
            dropped.push((replaced.version, Arc::default()));
        }
        dropped
    }
}

/// Returns `true` if the filters of `live` are where `meta` has them.
fn has_filters_of(live: &LiveTable, meta: &TableMeta) -> bool {
    FilterRole::ALL.into_iter().all(|role| live.filter_place(role) == meta.filter_place(role))
}

/// Returns whether `memtables`, the newest first, are those of `view`.
fn shows(view: &KeptView, memtables: &[Arc<PlacedMemtable>]) -> bool {
    if memtables.is_empty() {
        return view.active.first_sequence().is_none() && view.frozen.is_empty();
    }
    let shown = view.placed_memtables();
    shown.map(Arc::as_ptr).eq(memtables.iter().map(Arc::as_ptr))
}
