//! Background work: what is due, what is claimed, and who waits for it.
//!
//! Workers run one step at a time. The order: unlink obsolete files, record changes of keyspaces
//! that the manifest lacks, flush, compact, fit filters to their plan, rebuild a filter, compact an
//! idle store. Without workers the thread takes the steps whose write made them necessary.
//!
//! | file                | content                                                           |
//! |---------------------|-------------------------------------------------------------------|
//! | `mod`               | the state under the lock of the scheduler                         |
//! | [`workers`]         | threads that take steps, and the bell that notifies them          |
//! | [`claim`]           | the next step                                                     |
//! | [`closing`]         | the end of background work                                        |
//! | [`busy_runs`]       | runs of level 0 that running compactions hold                     |
//! | [`due_trees`]       | keyspaces that may have work                                      |
//! | [`crowded`]         | merges in a store with too many tables                            |
//! | [`full_disk`]       | pauses of jobs that found no space                                |
//! | [`idle_compaction`] | compactions of an idle store                                      |
//! | [`idle_memtables`]  | flushes of an idle store                                          |
//! | [`lent`]            | workers lent to a compaction of several ranges of keys            |
//! | [`room_waits`]      | tasks that wait until writes are not delayed                      |
//! | [`wait`]            | waits for work                                                    |
//! | [`requests`]        | requests to compact a range of a keyspace                         |
//! | [`pause`]           | pauses of compactions                                             |
//! | [`unneeded`]        | memory that workers free                                          |
//! | [`urgent`]          | jobs that a compaction carries out, without a free worker         |
//!
//! The lock of the state is taken after those of placement and manifest, and before those of trees
//! and snapshots. The lock of the bell is the last of all.

mod busy_runs;
mod claim;
mod closing;
mod crowded;
pub(super) mod due_trees;
mod full_disk;
mod idle_compaction;
mod idle_memtables;
mod lent;
mod pause;
mod precedence;
pub(in crate::store) mod requests;
mod room_waits;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
mod unneeded;
mod urgent;
mod wait;
mod workers;

use std::{collections::BTreeSet, mem, sync::Arc};

use self::{
    due_trees::DueTrees, full_disk::FullDisk, idle_compaction::IdleCompactions,
    idle_memtables::IdleMemtables, requests::RangeRequests, room_waits::RoomWaits,
    unneeded::UnneededMemory, workers::Bell,
};
use crate::{
    barriers,
    compaction::choice::Compaction,
    filters::FilterJob,
    read::tree::Tree,
    resolve::ReadPoint,
    stats::BackgroundStats,
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// Background work of an open store.
#[derive(Debug)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    unneeded: Arc<UnneededMemory>,
    /// Tables with smaller ids existed when the store was opened.
    first_file_id: u64,
    /// The refusal of barriers was reported, or was there when the store was opened.
    has_reported_refusal: AtomicBool,
    /// A worker made the store read-only, and has not reported it yet.
    owes_read_only_event: AtomicBool,
    /// Scans have stepped over enough tombstones of a memtable to make its flush due.
    freezes_skipped: AtomicBool,
    /// 1 plus the sequence number of the point that the oldest snapshot must reach for a compaction
    /// to be due; 0 if no compaction waits for a snapshot.
    awaited_snapshot: AtomicU64,
    /// The store clock of this point, in milliseconds.
    awaited_clock_ms: AtomicU64,
    /// Tables take too much memory, and merges make them fewer.
    merges_tables: AtomicBool,
    /// There are pauses. Written under the lock of the state.
    is_paused: AtomicBool,
    bell: Arc<Bell>,
    room_waits: RoomWaits,
    /// Notified when work was done, or cannot be done.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of rings at the last search for work, without workers.
    rings_seen: u64,
    /// Keyspaces that may have work.
    due: DueTrees,
    /// The next search for compactions visits all keyspaces.
    looks_at_all: bool,
    shut_down: bool,
    /// Keyspaces whose memtables are being flushed.
    flushing: BTreeSet<u64>,
    /// Threads that do work in place of workers.
    inline: usize,
    /// A flush was claimed: a merge of a crowded store precedes the next one.
    merge_turn: bool,
    /// An unlink was claimed: a flush precedes the next one.
    flush_turn: bool,
    unlinker: Unlinker,
    /// Jobs of filters in flight.
    filter_jobs: usize,
    /// Compactions in flight, with the id of their keyspace.
    running: Vec<(u64, Compaction)>,
    /// Workers lent to them.
    lent: usize,
    requests: RangeRequests,
    /// Pauses of compactions.
    pauses: usize,
    /// Keyspaces that get ingested tables: no compaction of them begins.
    ingesting: BTreeSet<u64>,
    idle_compactions: IdleCompactions,
    idle_memtables: IdleMemtables,
    full_disk: FullDisk,
    /// Number of calls that ended a pause of compactions or rebuilds, and of those that ended one
    /// of flushes.
    retries: u64,
    flush_retries: u64,
    done: BackgroundStats,
    /// Number of claims whose job panicked.
    abandoned: usize,
}

/// The thread that unlinks obsolete files. No second one does: blob files are unlinked after the
/// log segments that were obsolete before, and a list of retired tables replaces the previous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Unlinker {
    #[default]
    None,
    Worker,
    Caller,
}

impl State {
    /// Returns how many workers claimed jobs in flight take.
    fn claims(&self) -> usize {
        let unlinks = usize::from(self.unlinker == Unlinker::Worker);
        self.flushing.len() + self.running.len() + self.lent + self.filter_jobs + unlinks
    }

    /// Returns how many calls have ended pauses of jobs like this one.
    fn retries_of(&self, job: &Job) -> u64 {
        if job.is_flush() { self.flush_retries } else { self.retries }
    }

    /// Returns the compactions in flight.
    fn running(&self) -> impl Iterator<Item = &Compaction> {
        self.running.iter().map(|(_, running)| running)
    }

    /// Returns the compactions of `tree` in flight.
    fn running_in(&self, tree: &Tree) -> Vec<Compaction> {
        let of_tree = self.running.iter().filter(|(id, _)| *id == tree.id);
        of_tree.map(|(_, compaction)| compaction.clone()).collect()
    }

    /// Claims `compaction` of `tree`.
    fn claim(&mut self, tree: &Tree, compaction: &Compaction) {
        debug_assert!(!self.shut_down, "no work begins after the end");
        debug_assert!(
            self.running.iter().filter(|(id, _)| *id == tree.id).all(|(_, running)| {
                running.tables().all(|table| compaction.tables().all(|other| other != table))
            }),
            "a table is compacted twice: {compaction}"
        );
        self.running.push((tree.id, compaction.clone()));
    }

    /// Ends the claim of `compaction` of `tree`. Other compactions may have waited for its end.
    fn end_claim(&mut self, tree: &Tree, compaction: &Compaction) {
        let is_this = |(id, other): &(u64, Compaction)| *id == tree.id && other == compaction;
        let at = self.running.iter().position(is_this);
        self.running.swap_remove(at.expect("a claimed compaction is running"));
        debug_assert!(!self.running.iter().any(is_this), "claimed twice: {compaction}");
        self.due.compact.add([tree.id]);
        // This compaction may have blocked a merge.
        self.due.crowded.note([tree.id]);
    }
}

/// A piece of work that one worker has claimed.
#[derive(Debug)]
enum Job {
    Unlink,
    /// Record changes of keyspaces in the manifest.
    Record,
    Flush(Arc<Tree>),
    Compact(Arc<Tree>, Compaction),
    /// A compaction that only an idle store does.
    CompactIdle(Arc<Tree>, Compaction),
    Filter(FilterJob),
}

impl Job {
    /// Returns whether a full disk pauses it like a flush.
    fn is_flush(&self) -> bool {
        matches!(self, Self::Record | Self::Flush(_))
    }
}

impl Scheduler {
    /// Creates the scheduler of a store whose new files have ids from `first_file_id` on.
    pub(super) fn new(has_workers: bool, first_file_id: u64) -> Self {
        let bell = Arc::<Bell>::default();
        Self {
            state: Mutex::default(),
            unneeded: Arc::new(UnneededMemory::new(&bell, has_workers)),
            first_file_id,
            has_reported_refusal: AtomicBool::new(barriers::is_refused()),
            owes_read_only_event: AtomicBool::new(false),
            freezes_skipped: AtomicBool::new(false),
            awaited_snapshot: AtomicU64::new(0),
            awaited_clock_ms: AtomicU64::new(0),
            merges_tables: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            bell,
            room_waits: RoomWaits::default(),
            progress: Condvar::new(),
        }
    }

    /// Notifies workers and waiting threads that there may be work.
    pub(crate) fn wake(&self) {
        // Under the lock: a thread that found no progress already waits.
        let _state = self.state.lock();
        self.bell.ring();
        self.progress.notify_all();
    }

    pub(crate) const fn room_waits(&self) -> &RoomWaits {
        &self.room_waits
    }

    pub(super) const fn unneeded(&self) -> &Arc<UnneededMemory> {
        &self.unneeded
    }

    /// Begins no compaction of `tree` until [`end_ingest`](Self::end_ingest). Returns those that
    /// are running.
    pub(crate) fn begin_ingest(&self, tree: &Tree) -> Vec<Compaction> {
        let mut state = self.state.lock();
        state.ingesting.insert(tree.id);
        state.running_in(tree)
    }

    /// Lets compactions of `tree` begin again.
    pub(crate) fn end_ingest(&self, tree: &Tree) {
        {
            let mut state = self.state.lock();
            state.ingesting.remove(&tree.id);
            state.due.compact.add([tree.id]);
            state.due.crowded.note([tree.id]);
        }
        self.wake();
    }

    /// Notes that scans made a memtable due. The next step freezes it.
    pub(crate) fn freeze_skipped(&self) {
        self.freezes_skipped.store(true, SeqCst);
        self.wake();
    }

    /// Returns whether [`freeze_skipped`](Self::freeze_skipped) was called since the last call.
    pub(crate) fn take_freezes_skipped(&self) -> bool {
        self.freezes_skipped.swap(false, SeqCst)
    }

    /// Notes that a compaction waits for the oldest snapshot to reach this point, or none does.
    fn await_snapshot(&self, awaited: Option<ReadPoint>) {
        self.awaited_clock_ms.store(awaited.map_or(0, ReadPoint::clock_ms), SeqCst);
        self.awaited_snapshot.store(awaited.map_or(0, |awaited| awaited.sequence + 1), SeqCst);
    }

    /// Notes the oldest snapshot. Notifies workers only if a compaction waits for it.
    pub(crate) fn snapshot_is_gone(&self, oldest_snapshot: Option<ReadPoint>) {
        let Some(sequence) = self.awaited_snapshot.load(SeqCst).checked_sub(1) else { return };
        let awaited = ReadPoint::at_time(sequence, self.awaited_clock_ms.load(SeqCst));
        if oldest_snapshot.is_none_or(|oldest| awaited <= oldest) {
            self.wake();
        }
    }

    /// Makes workers check these keyspaces: a compaction may be due without a change.
    pub(crate) fn look_at(&self, ids: &[u64]) {
        if !ids.is_empty() {
            self.state.lock().due.compact.add(ids.iter().copied());
            self.wake();
        }
    }

    /// Notes that a write waits for a compaction of level 0 of this keyspace.
    pub(in crate::store) fn note_stopped(&self, id: u64) {
        // Each ring makes tasks that wait for room call this again.
        if self.state.lock().due.stopped.insert(id) {
            self.wake();
        }
    }

    /// Makes workers check all keyspaces: a compaction may be due without a change.
    pub(crate) fn look_at_all(&self) {
        self.state.lock().looks_at_all = true;
        self.wake();
    }

    /// Ends the pauses after a full disk.
    pub(crate) fn retry(&self) {
        {
            let mut state = self.state.lock();
            state.full_disk.retry();
            state.retries += 1;
            state.flush_retries += 1;
        }
        self.wake();
    }

    /// Ends the pause of flushes after a full disk.
    pub(in crate::store) fn retry_flushes(&self) {
        {
            let mut state = self.state.lock();
            state.full_disk.end_flush_stop();
            state.flush_retries += 1;
        }
        self.wake();
    }

    /// Returns whether the system has begun to refuse barriers that it allowed before; once.
    fn is_refusal_new(&self) -> bool {
        barriers::is_refused() && !self.has_reported_refusal.swap(true, Relaxed)
    }

    /// Returns whether tables take too much memory, and merges make them fewer.
    pub(super) fn merges_tables(&self) -> bool {
        self.merges_tables.load(Relaxed)
    }

    /// Returns what was done since the opening.
    pub(crate) fn done(&self) -> BackgroundStats {
        self.state.lock().done
    }

    /// Returns the least input of compactions that wait for space on the disk, in bytes.
    pub(crate) fn refused_bytes(&self) -> u64 {
        self.state.lock().full_disk.refused_bytes()
    }

    /// Adds to what was done.
    pub(crate) fn count(&self, add: impl FnOnce(&mut BackgroundStats)) {
        add(&mut self.state.lock().done);
    }

    /// Returns whether there may be work since the last call, or work that a full disk postponed,
    /// in a store without workers.
    fn has_news(&self) -> bool {
        let mut state = self.state.lock();
        let rings = self.bell.rings();
        let is_new = mem::replace(&mut state.rings_seen, rings) != rings;
        is_new || state.full_disk.error().is_some()
    }
}
