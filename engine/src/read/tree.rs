//! The LSM tree of a keyspace.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use sievedb_format::SequenceNumber;
use sievedb_sstable::TableOrigin;

use crate::{
    Error, Result,
    compaction::levels::Debt,
    filter_policy::FilterPolicy,
    keyspace_options::KeyspaceOptions,
    memory::{Charge, MemoryAccount, MemoryUse},
    read::changed_trees::ChangedTrees,
    read::view::{KeptView, PlacedMemtable, ReadView},
    read::view_cell::{ViewCell, ViewGuard},
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    version::Version,
};

/// The LSM tree of a keyspace: its present view, and how the view changes.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: u64,
    pub(crate) name: String,
    options: ArcSwap<KeyspaceOptions>,
    filter_settings_number: AtomicU64,
    memory: Arc<MemoryAccount>,
    changed: Arc<ChangedTrees>,
    view: ViewCell<ReadView>,
    /// Held while a new view is made from the old one.
    change: Mutex<()>,
    dropped: AtomicBool,
    /// Bytes that compactions would write until no level is due, about.
    compaction_debt_bytes: AtomicU64,
    /// Runs of level 0 that no compaction reduces.
    level0_runs_kept: AtomicUsize,
    bookkeeping: Charge,
}

/// What a keyspace takes as long as nothing is written to it, apart from its name and its options:
/// this, its views of which one may still be read while the next is made, the versions and the
/// memtable in them, its entry in the manifest and the maps of the store.
const KEYSPACE_BYTES: usize = size_of::<Tree>()
    + 2 * (size_of::<ReadView>() + size_of::<Version>() + size_of::<PlacedMemtable>())
    + size_of::<KeyspaceOptions>()
    + IN_MAPS_BYTES;

/// The manifest's state of a keyspace, and its places in maps by number and by name, whose nodes
/// may be half empty.
const IN_MAPS_BYTES: usize = 512;

impl Tree {
    pub(crate) fn new(
        id: u64,
        name: String,
        options: KeyspaceOptions,
        version: Version,
        memory: Arc<MemoryAccount>,
        changed: Arc<ChangedTrees>,
    ) -> Self {
        let active = Arc::new(PlacedMemtable::new(options.memtable_bytes, &memory));
        let view = KeptView { active, frozen: Vec::new(), version: Arc::new(version) };
        changed.note(id);
        // In the store, in the manifest, and encoded for the next manifest.
        let text_bytes = 3 * (name.len() + options.encode().len());
        let bookkeeping = memory.charge(MemoryUse::Bookkeeping, KEYSPACE_BYTES + text_bytes);
        Self {
            id,
            name,
            options: ArcSwap::from_pointee(options),
            filter_settings_number: AtomicU64::new(0),
            memory,
            changed,
            view: ViewCell::new(Arc::new(ReadView::new(id, view))),
            change: Mutex::new(()),
            dropped: AtomicBool::new(false),
            compaction_debt_bytes: AtomicU64::new(0),
            level0_runs_kept: AtomicUsize::new(0),
            bookkeeping,
        }
    }

    /// Returns the part of a table's origin that is the same for all tables of the keyspace.
    pub(crate) fn origin(&self) -> TableOrigin {
        let options = self.options().encode().into();
        TableOrigin {
            keyspace: self.id,
            name: (*self.name).into(),
            options,
            ..TableOrigin::default()
        }
    }

    /// The present options. For short use.
    pub(crate) fn options(&self) -> Guard<Arc<KeyspaceOptions>> {
        self.options.load()
    }

    /// The present options, to be kept.
    pub(crate) fn kept_options(&self) -> Arc<KeyspaceOptions> {
        self.options.load_full()
    }

    /// Changes the options. Scans, flushes and compactions in flight go on with those before.
    pub(crate) fn set_options(&self, options: KeyspaceOptions) {
        self.options.store(Arc::new(options));
        self.filter_settings_number.fetch_add(1, SeqCst);
        self.changed.note(self.id);
    }

    /// What is asked of the filters at present.
    pub(crate) fn filter_policy(&self) -> FilterPolicy {
        self.options().filter_policy
    }

    /// How often what may be asked of the filters was changed: read it before that.
    pub(crate) fn filter_settings_number(&self) -> u64 {
        self.filter_settings_number.load(SeqCst)
    }

    /// The present view, without a lock, a shared reference count or, on Linux, even a locked
    /// instruction, which would keep the next lookup from beginning before this one ends. A thread
    /// that holds one already pays for a short lock and a count. For short use.
    #[inline]
    pub(crate) fn view(&self) -> ViewGuard<'_, ReadView> {
        self.view.load()
    }

    /// The present memtables and tables, to be kept.
    pub(crate) fn kept_view(&self) -> KeptView {
        self.view().kept().clone()
    }

    /// Puts a view in place.
    fn set_view(&self, view: KeptView) {
        self.view.store(Arc::new(ReadView::new(self.id, view)));
        let of_threads = self.view.take_new_slots_bytes();
        if of_threads > 0 {
            self.bookkeeping.grow(of_threads);
        }
        self.changed.note(self.id);
    }

    /// Lets lookups use the present filters of the tables, and the others go as soon as those under
    /// way are done.
    pub(crate) fn refresh_filters(&self) {
        let _change = self.change.lock();
        self.set_view(self.kept_view());
    }

    /// Whether the active memtable is to be frozen.
    pub(crate) fn is_full(&self) -> bool {
        self.view().active.memtable.memory_bytes() >= self.options().memtable_bytes
    }

    /// Freezes the active memtable, if anything was placed in it, and puts an empty one in place.
    ///
    /// The caller holds the placement lock, so that every batch lies in one memtable and all of a
    /// memtable's sequence numbers are below those of the next one.
    pub(crate) fn freeze(&self) -> bool {
        let _change = self.change.lock();
        let view = self.kept_view();
        if view.active.first_sequence().is_none() {
            return false;
        }
        let mut frozen = vec![Arc::clone(&view.active)];
        frozen.extend_from_slice(&view.frozen);
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        view.active.set_use(MemoryUse::FrozenMemtables);
        self.set_view(KeptView { active, frozen, version: view.version });
        true
    }

    /// Puts a new version in place, without the memtables that it covers: those where the last
    /// sequence number placed is at most `flushed`.
    pub(crate) fn install(
        &self,
        flushed: SequenceNumber,
        version: impl FnOnce(&Version) -> Version,
    ) {
        let _change = self.change.lock();
        let mut view = self.kept_view();
        let is_flushed = |placed: &mut Arc<PlacedMemtable>| placed.last_sequence() <= flushed;
        let unneeded: Vec<_> = view.frozen.extract_if(.., is_flushed).collect();
        view.version = Arc::new(version(&view.version));
        self.set_view(view);
        for placed in unneeded {
            placed.set_use(MemoryUse::PinnedMemtables);
        }
    }

    /// Bytes that compactions would write until no level is due, about.
    pub(crate) fn compaction_debt_bytes(&self) -> u64 {
        self.compaction_debt_bytes.load(Relaxed)
    }

    /// Runs of level 0 that no compaction reduces, because of quarantined tables.
    pub(crate) fn level0_runs_kept(&self) -> usize {
        self.level0_runs_kept.load(Relaxed)
    }

    /// Notes what compactions have to do.
    pub(crate) fn set_compaction_debt(&self, debt: Debt) {
        self.compaction_debt_bytes.store(debt.bytes, Relaxed);
        self.level0_runs_kept.store(debt.level0_runs_kept, Relaxed);
    }

    /// Puts the memtable of a replayed log in place of the empty one, before anybody reads.
    pub(crate) fn set_replayed(&self, active: Arc<PlacedMemtable>) {
        let _change = self.change.lock();
        self.set_view(KeptView { active, ..self.kept_view() });
    }

    /// Lets go of all data. Tables are unlinked when their last reader lets go. The manifest does
    /// not name them any more.
    pub(crate) fn discard(&self) {
        let _change = self.change.lock();
        let view = self.kept_view();
        for (_, _, live) in view.version.tables() {
            live.mark_obsolete();
        }
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        let version = Arc::new(Version::default());
        self.set_view(KeptView { active, frozen: Vec::new(), version });
        for placed in [&view.active].into_iter().chain(&view.frozen) {
            placed.set_use(MemoryUse::PinnedMemtables);
        }
    }

    /// The first sequence number that is in memtables only.
    pub(crate) fn first_unflushed(&self) -> Option<SequenceNumber> {
        let view = self.view();
        let oldest_first = view.frozen.iter().rev().chain([&view.active]);
        oldest_first.filter_map(|placed| placed.first_sequence()).next()
    }

    /// The handle is of no use any more.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, SeqCst);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::KeyspaceDropped { name: self.name.clone() });
        }
        Ok(())
    }
}
