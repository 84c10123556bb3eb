//! The LSM tree of a keyspace.

mod ingest;

use std::{collections::BTreeSet, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use sievedb_format::SequenceNumber;
use sievedb_memtable::Memtable;
use sievedb_sstable::TableOrigin;

use crate::{
    Error, Result,
    compaction::debt::Debt,
    compaction_filter::CompactionFilter,
    filter_policy::FilterPolicy,
    fold::OperatorCell,
    history_length::{HistoryLength, HistoryStart},
    keyspace_options::KeyspaceOptions,
    memory::{Charge, MemoryAccount, MemoryUse},
    read::changed_trees::ChangedTrees,
    read::view::{KeptView, PlacedMemtable, ReadView},
    read::view_cell::{ViewCell, ViewGuard},
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    version::Version,
};

/// The LSM tree of a keyspace: replaces its view when memtables or tables change.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) id: u64,
    /// Shared with the merge operator, whose errors contain the name.
    name: Arc<ArcSwap<String>>,
    options: ArcSwap<KeyspaceOptions>,
    operator: OperatorCell,
    /// Default TTL of the options; 0 for none. Every write of a value reads it.
    default_ttl_ms: AtomicU64,
    /// The compaction filter has failed since the options were set.
    has_failed_filter: AtomicBool,
    filter_settings_number: AtomicU64,
    memory: Arc<MemoryAccount>,
    changed: Arc<ChangedTrees>,
    view: ViewCell<ReadView>,
    /// Held while the view is replaced.
    change: Mutex<()>,
    dropped: AtomicBool,
    /// Sequence number of the log record of the last rename; 0 without one.
    renamed: AtomicU64,
    /// Sequence number of the clear in flight; 0 without one.
    clearing: AtomicU64,
    /// Ingested tables are being installed. Changed under `change`.
    ingesting: AtomicBool,
    /// Notified when `ingesting` is reset.
    ingested: Condvar,
    /// Versions that a reader before this sequence number sees may be missing. Never decreases.
    history_from: AtomicU64,
    /// Values that expired by this time of the store clock, in milliseconds, may also be missing.
    history_clock_ms: AtomicU64,
    /// See [`Debt::bytes`].
    compaction_debt_bytes: AtomicU64,
    /// See [`Debt::level0_runs_kept`].
    level0_runs_kept: AtomicUsize,
    /// Runs of level 0 that running compactions hold as a whole, and that delay no write.
    pub(crate) level0_runs_busy: AtomicUsize,
    /// 1 plus the number of the newest run of level 0 that another style or a pause left; 0 if none
    /// did. Changed under the lock of the scheduler.
    pub(crate) level0_newest_left: AtomicU64,
    bookkeeping: Charge,
}

/// Memory of an empty keyspace, without name and options: the tree, two views with their versions
/// and memtables (one may still be read), the entries in the manifest and in the maps of the store.
const KEYSPACE_BYTES: usize = size_of::<Tree>()
    + 2 * (size_of::<ReadView>() + size_of::<Version>())
    + 2 * (size_of::<PlacedMemtable>() + size_of::<Memtable>())
    + size_of::<KeyspaceOptions>()
    + IN_MAPS_BYTES;

/// Bytes of the state in the manifest and of entries in maps by id and by name, whose nodes may be
/// half empty.
const IN_MAPS_BYTES: usize = 512;

impl Tree {
    pub(crate) fn new(
        id: u64,
        name: String,
        options: impl Into<Arc<KeyspaceOptions>>,
        version: Version,
        memory: Arc<MemoryAccount>,
        changed: Arc<ChangedTrees>,
    ) -> Self {
        let options = options.into();
        let active = Arc::new(PlacedMemtable::new(options.memtable_bytes, &memory));
        let operator = OperatorCell::default();
        // The texts are in the store, in the manifest, and encoded for the next manifest.
        let text_bytes = 3 * (name.len() + options.encode().len());
        let name = Arc::new(ArcSwap::from_pointee(name));
        operator.set(&name, &options.merge_operator);
        let view = KeptView {
            active,
            frozen: Vec::new(),
            version: Arc::new(version),
            operator: operator.clone(),
            cleared: 0,
            snapshots_from: 0,
            unlinked_to: 0,
        };
        changed.insert(id);
        let bookkeeping = memory.charge(MemoryUse::Bookkeeping, KEYSPACE_BYTES + text_bytes);
        let default_ttl_ms = AtomicU64::new(options.default_ttl_ms.unwrap_or(0));
        Self {
            id,
            name,
            options: ArcSwap::new(options),
            operator,
            default_ttl_ms,
            has_failed_filter: AtomicBool::new(false),
            filter_settings_number: AtomicU64::new(0),
            memory,
            changed,
            view: ViewCell::new(Arc::new(ReadView::new(id, view))),
            change: Mutex::new(()),
            dropped: AtomicBool::new(false),
            renamed: AtomicU64::new(0),
            clearing: AtomicU64::new(0),
            ingesting: AtomicBool::new(false),
            ingested: Condvar::new(),
            history_from: AtomicU64::new(0),
            history_clock_ms: AtomicU64::new(0),
            compaction_debt_bytes: AtomicU64::new(0),
            level0_runs_kept: AtomicUsize::new(0),
            level0_runs_busy: AtomicUsize::new(0),
            level0_newest_left: AtomicU64::new(0),
            bookkeeping,
        }
    }

    /// Returns the current name.
    pub(crate) fn name(&self) -> String {
        String::clone(&self.name.load())
    }

    /// Returns the sequence number of the last rename; 0 without one.
    pub(crate) fn renamed(&self) -> SequenceNumber {
        self.renamed.load(SeqCst)
    }

    pub(crate) fn note_renamed(&self, sequence: SequenceNumber) {
        self.renamed.store(sequence, SeqCst);
    }

    /// Changes the name by the record `sequence`, which is durable in the log.
    pub(crate) fn set_name(&self, name: String, sequence: SequenceNumber) {
        self.note_renamed(sequence);
        // Same factor as in `new`. A shorter name does not reduce the charge.
        let more = 3 * name.len().saturating_sub(self.name.load().len());
        if more > 0 {
            self.bookkeeping.grow(more);
        }
        self.name.store(Arc::new(name));
    }

    /// Returns the part of a table's origin that is the same for all tables of the keyspace.
    pub(crate) fn origin(&self) -> TableOrigin {
        let options = self.options().encode().into();
        let version = self.kept_view().version;
        let ingests = version.tables().filter_map(|(_, _, live)| live.meta.global_sequence);
        let ingests = ingests.collect::<BTreeSet<_>>().into_iter().collect();
        let (keyspace, name) = (self.id, self.name().into());
        TableOrigin { keyspace, name, options, ingests, ..TableOrigin::default() }
    }

    /// Returns the current options, for short use.
    pub(crate) fn options(&self) -> Guard<Arc<KeyspaceOptions>> {
        self.options.load()
    }

    /// Returns the current options, to be kept.
    pub(crate) fn kept_options(&self) -> Arc<KeyspaceOptions> {
        self.options.load_full()
    }

    /// Replaces the options. Scans, flushes and compactions in flight keep the previous ones.
    pub(crate) fn set_options(&self, options: KeyspaceOptions) {
        self.operator.set(&self.name, &options.merge_operator);
        self.default_ttl_ms.store(options.default_ttl_ms.unwrap_or(0), Relaxed);
        self.options.store(Arc::new(options));
        self.has_failed_filter.store(false, SeqCst);
        self.filter_settings_number.fetch_add(1, SeqCst);
        self.changed.insert(self.id);
    }

    /// Returns the expiry of a value that is written now without an explicit one; `None` if it
    /// never expires. `clock_ms` reads the store clock.
    #[inline]
    pub(crate) fn default_expiry_ms(&self, clock_ms: impl FnOnce() -> u64) -> Option<u64> {
        match self.default_ttl_ms.load(Relaxed) {
            0 => None,
            ttl_ms => Some(clock_ms().saturating_add(ttl_ms)),
        }
    }

    /// Returns the merge operator of the keyspace, which is set at most once.
    pub(crate) fn operator(&self) -> &OperatorCell {
        &self.operator
    }

    /// Returns the compaction filter, unless it has failed.
    pub(crate) fn compaction_filter(&self) -> Option<Arc<dyn CompactionFilter>> {
        let options = self.options();
        let filter = options.compaction_filter.present()?;
        (!self.has_failed_filter.load(SeqCst)).then(|| Arc::clone(filter))
    }

    /// Records that `filter` has failed, if it is still the filter of the keyspace. Compactions
    /// then no longer call it. Returns `true` for the first failure.
    pub(crate) fn fail_compaction_filter(&self, filter: &Arc<dyn CompactionFilter>) -> bool {
        let options = self.options();
        let present = options.compaction_filter.present();
        let is_present = present.is_some_and(|present| Arc::ptr_eq(present, filter));
        is_present && !self.has_failed_filter.swap(true, SeqCst)
    }

    /// Returns how long old versions are kept; `None` without a history.
    pub(crate) fn history_length(&self) -> Option<HistoryLength> {
        self.options().history
    }

    /// Returns the point before which versions may be missing in the history.
    pub(crate) fn history_from(&self) -> HistoryStart {
        let sequence = self.history_from.load(SeqCst);
        HistoryStart { sequence, clock_ms: self.history_clock_ms.load(SeqCst) }
    }

    /// Records that versions before `start` may be missing. The caller holds the lock of the
    /// snapshots, or no reader knows the tree.
    pub(crate) fn raise_history_from(&self, start: HistoryStart) {
        self.history_from.fetch_max(start.sequence, SeqCst);
        self.history_clock_ms.fetch_max(start.clock_ms, SeqCst);
    }

    /// Returns an error if the keyspace has no merge operator.
    ///
    /// # Errors
    ///
    /// [`Error::NoMergeOperator`].
    pub(crate) fn check_operator(&self) -> Result<()> {
        if self.operator.get().is_none() {
            return Err(Error::NoMergeOperator { keyspace: self.name() });
        }
        Ok(())
    }

    pub(crate) fn filter_policy(&self) -> FilterPolicy {
        self.options().filter_policy
    }

    /// Returns the number of changes of options so far. Read it before the filter policy.
    pub(crate) fn filter_settings_number(&self) -> u64 {
        self.filter_settings_number.load(SeqCst)
    }

    /// Borrows the current view, for short use.
    ///
    /// Takes no lock, no shared reference count and, on Linux, no locked instruction, which would
    /// delay the next lookup until this one ends. A thread that already holds a view pays for a
    /// short lock and a count.
    #[inline(always)]
    pub(crate) fn view(&self) -> ViewGuard<'_, ReadView> {
        self.view.load()
    }

    /// As [`view`](Self::view), for background work, which reads all keyspaces. A thread that has
    /// not called `view` pays for a short lock and a count, but keeps no memory afterwards.
    pub(crate) fn view_seldom(&self) -> ViewGuard<'_, ReadView> {
        self.view.load_seldom()
    }

    /// Returns the current memtables and tables, to be kept. Costs as much as
    /// [`view_seldom`](Self::view_seldom).
    pub(crate) fn kept_view(&self) -> KeptView {
        self.view_seldom().kept().clone()
    }

    /// Replaces the view, under the lock `change`.
    fn set_view(&self, _change: &MutexGuard<'_, ()>, view: KeptView) {
        debug_assert!(view.frozen.iter().all(|placed| placed.first_sequence().is_some()));
        debug_assert!(
            view.frozen.is_sorted_by(|a, b| a.first_sequence() > b.first_sequence()),
            "memtables are ordered, the newest first"
        );
        self.view.store(Arc::new(ReadView::new(self.id, view)));
        let of_threads = self.view.take_new_slots_bytes();
        if of_threads > 0 {
            self.bookkeeping.grow(of_threads);
        }
        self.changed.insert(self.id);
    }

    /// Makes lookups use the current filters of the tables. Replaced filters are freed when the
    /// lookups in flight end.
    pub(crate) fn refresh_filters(&self) {
        let change = self.change.lock();
        self.set_view(&change, self.kept_view());
    }

    /// Freezes the active memtable, if anything was placed in it, and replaces it by an empty one.
    ///
    /// The caller holds the placement lock, so that every batch lies in one memtable and all of a
    /// memtable's sequence numbers are below those of the next one.
    pub(crate) fn freeze(&self) -> bool {
        let change = self.change.lock();
        let view = self.kept_view();
        if view.active.first_sequence().is_none() {
            return false;
        }
        let mut frozen = vec![Arc::clone(&view.active)];
        frozen.extend_from_slice(&view.frozen);
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        view.active.set_use(MemoryUse::FrozenMemtables);
        self.set_view(&change, KeptView { active, frozen, ..view });
        true
    }

    /// Replaces the version, and removes the memtables that it covers: those whose last sequence
    /// number is at most `flushed`. Snapshots below `snapshots_from` keep the previous view, which
    /// is returned. Entries up to `unlinked_to` may be missing.
    pub(crate) fn install(
        &self,
        flushed: SequenceNumber,
        snapshots_from: SequenceNumber,
        unlinked_to: SequenceNumber,
        version: impl FnOnce(&Version) -> Version,
    ) -> KeptView {
        let change = self.change.lock();
        let before = self.kept_view();
        let mut view = before.clone();
        view.snapshots_from = view.snapshots_from.max(snapshots_from);
        view.unlinked_to = view.unlinked_to.max(unlinked_to);
        let is_flushed = |placed: &mut Arc<PlacedMemtable>| placed.last_sequence() <= flushed;
        let unneeded: Vec<_> = view.frozen.extract_if(.., is_flushed).collect();
        debug_assert!(
            view.frozen.iter().all(|it| it.first_sequence().is_none_or(|first| first > flushed)),
            "a memtable is flushed in parts"
        );
        view.version = Arc::new(version(&view.version));
        debug_assert!(
            view.version.runs().windows(2).all(|runs| runs[0].level <= runs[1].level),
            "runs are ordered, shallowest first"
        );
        self.set_view(&change, view);
        for placed in unneeded {
            placed.set_use(MemoryUse::PinnedMemtables);
        }
        before
    }

    /// Replaces tables and memtables, the newest first, by those of a later point of the history,
    /// replayed from a log; `None` for no change. Snapshots below `snapshots_from` keep the
    /// previous view, which is returned.
    pub(crate) fn replace(
        &self,
        memtables: Option<&[Arc<PlacedMemtable>]>,
        version: Option<Arc<Version>>,
        snapshots_from: SequenceNumber,
    ) -> KeptView {
        let change = self.change.lock();
        let before = self.kept_view();
        let mut view = before.clone();
        view.snapshots_from = view.snapshots_from.max(snapshots_from);
        view.version = version.unwrap_or(view.version);
        if let Some(memtables) = memtables {
            let new = || PlacedMemtable::new(self.options().memtable_bytes, &self.memory);
            view.active = memtables.first().map_or_else(|| Arc::new(new()), Arc::clone);
            view.frozen = memtables.iter().skip(1).cloned().collect();
        }
        let is_kept = |placed: &Arc<PlacedMemtable>| {
            view.placed_memtables().any(|kept| Arc::ptr_eq(kept, placed))
        };
        let removed: Vec<_> = before.placed_memtables().filter(|it| !is_kept(it)).collect();
        self.set_view(&change, view);
        removed.into_iter().for_each(|placed| placed.set_use(MemoryUse::PinnedMemtables));
        before
    }

    /// See [`Debt::bytes`].
    pub(crate) fn compaction_debt_bytes(&self) -> u64 {
        self.compaction_debt_bytes.load(Relaxed)
    }

    /// See [`Debt::level0_runs_kept`].
    pub(crate) fn level0_runs_kept(&self) -> usize {
        self.level0_runs_kept.load(Relaxed)
    }

    /// Returns whether more runs of level 0 delay no write than before.
    pub(crate) fn set_compaction_debt(&self, debt: Debt) -> bool {
        debug_assert!(debt.level0_runs_kept <= debt.level0_runs, "{debt:?}");
        self.compaction_debt_bytes.store(debt.bytes, Relaxed);
        self.level0_runs_kept.swap(debt.level0_runs_kept, Relaxed) < debt.level0_runs_kept
    }

    /// Drops all data, which the manifest no longer names. Tables are unlinked when their last
    /// reader ends.
    pub(crate) fn discard(&self) {
        let change = self.change.lock();
        let view = self.kept_view();
        for (_, _, live) in view.version.tables() {
            live.mark_obsolete();
        }
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        let version = Arc::new(Version::default());
        let empty = KeptView { active, frozen: Vec::new(), version, ..view.clone() };
        self.set_view(&change, empty);
        for placed in [&view.active].into_iter().chain(&view.frozen) {
            placed.set_use(MemoryUse::PinnedMemtables);
        }
    }

    /// Begins the clear at `sequence`. Writes to the keyspace wait until it ends. The caller holds
    /// the placement lock.
    pub(crate) fn begin_clear(&self, sequence: SequenceNumber) {
        debug_assert!(self.clear_in_flight().is_none(), "one clear at a time");
        debug_assert!(self.view_seldom().active.last_sequence() < sequence);
        self.clearing.store(sequence, SeqCst);
    }

    /// Returns the sequence number of the clear in flight. It becomes visible soon after the end of
    /// the clear.
    #[inline]
    pub(crate) fn clear_in_flight(&self) -> Option<SequenceNumber> {
        Some(self.clearing.load(SeqCst)).filter(|&sequence| sequence > 0)
    }

    /// Ends the clear in flight, whether it succeeded or failed.
    pub(crate) fn end_clear(&self) {
        debug_assert!(self.clear_in_flight().is_some(), "no clear was begun");
        self.clearing.store(0, SeqCst);
    }

    /// Replaces memtables and tables by empty ones for the clear in flight, before it is visible.
    /// Returns the previous view, in which every write is visible. Its tables stay until the
    /// manifest no longer names them.
    pub(crate) fn clear(&self) -> KeptView {
        let change = self.change.lock();
        let before = self.kept_view();
        let cleared = self.clear_in_flight().expect("a clear was begun");
        self.raise_history_from(HistoryStart { sequence: cleared, clock_ms: 0 });
        debug_assert!(before.cleared < cleared, "clears ascend");
        debug_assert!(before.placed_memtables().all(|placed| placed.last_sequence() < cleared));
        let active = Arc::new(PlacedMemtable::new(self.options().memtable_bytes, &self.memory));
        let version = Arc::new(Version::default());
        let (frozen, snapshots_from) = (Vec::new(), cleared);
        let empty = KeptView { active, frozen, version, cleared, snapshots_from, ..before.clone() };
        self.set_view(&change, empty);
        before.placed_memtables().for_each(|placed| placed.set_use(MemoryUse::PinnedMemtables));
        before
    }

    /// Returns the first sequence number that is only in memtables.
    pub(crate) fn first_unflushed(&self) -> Option<SequenceNumber> {
        let view = self.view_seldom();
        let oldest_first = view.frozen.iter().rev().chain([&view.active]);
        oldest_first.filter_map(|placed| placed.first_sequence()).next()
    }

    /// Makes every use of a handle fail.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, SeqCst);
    }

    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`].
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_dropped() { Err(self.dropped_error()) } else { Ok(()) }
    }

    #[cold]
    fn dropped_error(&self) -> Error {
        Error::KeyspaceDropped { name: self.name() }
    }
}
