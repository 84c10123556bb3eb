//! The change stream: committed batches in the order of their sequence numbers.
//!
//! A stream reads the files of the log, not the tables, so it sees every version of a key, and
//! every batch whole. While it reads, it holds no lock and no snapshot: flushes, compactions and
//! writes continue. Obsolete log segments are kept within the limits of
//! [`ChangeRetention`](crate::ChangeRetention).

mod batch;
mod names;
mod old_values;
mod options;
#[cfg(feature = "stream")]
mod stream;

use std::{
    fmt,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use sievedb_format::SequenceNumber;

#[cfg(feature = "stream")]
pub use self::stream::ChangesStream;
pub use self::{
    batch::{Change, ChangeBatch, ChangeKind, OldValue},
    options::ChangesOptions,
};
use self::{names::Names, old_values::OldValues};
use crate::{
    Durability, Error, Result,
    clock::{Clock as _, SystemClock},
    commit::WakerId,
    planted::PlantedBug,
    store::{Store, open_store::OpenStore},
    wal::tail::{LogTail, TailBatch, TailSegment},
};

/// Pause of a stream that has read everything, before it waits.
const PAUSE: Duration = Duration::from_millis(1);

/// Committed batches in the order of their sequence numbers: see
/// [`Db::changes`](crate::Db::changes).
///
/// Each batch is returned once and whole, after all batches before it. Writes that failed are never
/// returned, except by a follower: see [`ChangesOptions::durability`]. Expiry and [compaction
/// filters](crate::CompactionFilter) remove keys without a change.
///
/// The iterator returns `None` after the newest batch, and continues when there are more.
/// [`next_within`](Self::next_within) waits for more batches, and [`poll_next`](Self::poll_next) is
/// for asynchronous code. An error ends the stream: see [`is_ended`](Self::is_ended).
///
/// Does not keep the store open: the stream ends when the store is closed. Uses one file
/// descriptor, and memory for the largest batch and up to about 1 MiB, outside of the
/// [budget](crate::Options::memory_budget). A stream that falls behind the retention ends with
/// [`Error::ChangesLost`].
///
/// # Errors
///
/// An error is the last item. To continue, open a new stream at [`position`](Self::position).
///
/// * [`Error::ChangesLost`], [`Error::Io`], [`Error::Corrupt`].
/// * [`Error::ReadOnly`]: the stream requires a sync of the log, and the store rejects writes.
/// * [`Error::FilesGone`] in a [follower](crate::Options::follow).
/// * With [`old_values`](ChangesOptions::old_values): errors of [`get`](crate::Keyspace::get).
pub struct Changes {
    open: Weak<OpenStore>,
    store: Arc<Store>,
    options: ChangesOptions,
    tail: LogTail,
    /// The segment with the next batch, when it was looked up.
    segment: Option<TailSegment>,
    /// Even: the log to which `segment` and `tail` belong.
    generation: u64,
    names: Names,
    /// Sequence number of the last entry returned.
    position: SequenceNumber,
    /// Sequence number up to which all batches were returned.
    seen: SequenceNumber,
    /// A batch that was read, but is not visible or not durable yet.
    held: Option<TailBatch>,
    /// `None` until a task waits.
    waker: Option<WakerId>,
    is_ended: bool,
}

impl Changes {
    /// # Errors
    ///
    /// As [`Db::changes`](crate::Db::changes).
    pub(crate) fn new(
        open: Weak<OpenStore>,
        store: Arc<Store>,
        since: SequenceNumber,
        options: ChangesOptions,
    ) -> Result<Self> {
        store.check_changes(since)?;
        let (tail, names) = (store.log_tail(), Names::at(&store, since));
        let generation = store.log_generation() & !1;
        Ok(Self {
            open,
            store,
            options,
            tail,
            segment: None,
            generation,
            names,
            position: since,
            seen: since,
            held: None,
            waker: None,
            is_ended: false,
        })
    }

    /// Returns the sequence number from which [`Db::changes`](crate::Db::changes) resumes: that of
    /// the last entry returned, or `since`. It has no meaning in a restored or repaired store.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns `true` if the stream returns no more batches: after an error, or because the store
    /// was closed.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended || matches!(self.store.check_open(), Err(Error::Closed))
    }

    /// Returns the next batch; waits for at most `timeout`. Returns `None` after the timeout, and
    /// if the stream [has ended](Self::is_ended).
    ///
    /// While a thread waits, each write costs one more system call. To save steady writers this
    /// cost, a stream at its end pauses for up to 1 ms before it waits.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<ChangeBatch>> {
        let clock = SystemClock::new();
        let mut pauses = true;
        loop {
            if let Some(next) = self.next() {
                return Some(next);
            }
            let left = timeout.saturating_sub(clock.now());
            if self.is_ended() || left.is_zero() {
                return None;
            }
            if pauses {
                clock.sleep(PAUSE.min(left));
            } else {
                let (after, is_over) = self.awaited();
                self.store.wait_for_changes(after, left, is_over);
            }
            pauses = !pauses;
        }
    }

    /// Returns the next batch, or registers the task to be notified when there may be one. Returns
    /// `None` if the stream [has ended](Self::is_ended).
    ///
    /// Requires no runtime. Reads files on the calling thread, and syncs the log if
    /// [`ChangesOptions::durability`] requires it. With the feature `stream`,
    /// `Changes::into_stream` returns a `futures_core::Stream` that calls this method.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ChangeBatch>>> {
        loop {
            if let Some(next) = self.next() {
                return Poll::Ready(Some(next));
            }
            if self.is_ended() {
                return Poll::Ready(None);
            }
            let id = *self.waker.get_or_insert_with(|| self.store.new_waker_id());
            let (after, is_over) = self.awaited();
            if self.store.wake_for_changes(id, after, context.waker(), is_over) {
                return Poll::Pending;
            }
        }
    }

    /// Returns the sequence number after which a batch may exist, and a function that returns
    /// `true` if the stream must look for one in any case.
    fn awaited(&self) -> (SequenceNumber, impl Fn() -> bool) {
        let store = &self.store;
        let generation = store.log_generation();
        // Visible batches cannot be read until the log is replaced.
        let is_replaced = !generation.is_multiple_of(2);
        let after = if is_replaced { store.writer.visible().max(self.seen) } else { self.seen };
        (after, move || store.check_open().is_err() || store.log_generation() != generation)
    }

    fn try_next(&mut self) -> Result<Option<ChangeBatch>> {
        let Some(tail) = self.next_tail()? else { return Ok(None) };
        let batch = ChangeBatch::decode(&tail, &mut self.names);
        let mut batch = batch.map_err(|source| self.tail.corrupt(&tail, source))?;
        if self.options.old_values {
            OldValues::before(&self.open, tail.first)?.add_to(&mut batch)?;
        }
        let repeats = self.store.options.has_bug(PlantedBug::RepeatChanges);
        if repeats && tail.last % 16 == 0 && self.position != tail.last {
            self.held = Some(tail.clone());
        }
        self.position = tail.last;
        Ok(Some(batch))
    }

    /// Returns the next batch as the log has it.
    ///
    /// # Errors
    ///
    /// As of the iterator. After an error, no further call may be made.
    pub(crate) fn next_tail(&mut self) -> Result<Option<TailBatch>> {
        self.store.check_open()?;
        let returns_unsynced = self.store.options.has_bug(PlantedBug::ReturnUnsyncedChanges);
        let durability = match returns_unsynced {
            true => Durability::OsBuffer,
            false => self.options.durability,
        };
        let ready = self.store.changes_ready(self.seen, durability)?;
        while let Some(tail) = self.read(ready)? {
            self.seen = tail.last;
            if !self.store.is_refused(tail.first) {
                return Ok(Some(tail));
            }
        }
        Ok(None)
    }

    /// Returns the sequence number up to which [`next_tail`](Self::next_tail) returned all batches.
    pub(crate) const fn seen(&self) -> SequenceNumber {
        self.seen
    }

    /// Returns the first batch after `seen` up to `ready`.
    fn read(&mut self, ready: SequenceNumber) -> Result<Option<TailBatch>> {
        if let Some(held) = self.held.take() {
            self.held = (held.last > ready).then_some(held.clone());
            return Ok(self.held.is_none().then_some(held));
        }
        if ready <= self.seen {
            return Ok(None);
        }
        let generation = self.store.log_generation();
        if generation.is_multiple_of(2) && generation != self.generation {
            (self.segment, self.generation) = (None, generation);
            self.tail.close();
        }
        let Some(segment) = self.segment()? else {
            // The rest are failed writes, which are not in the log.
            self.seen = ready;
            return Ok(None);
        };
        let next = self.tail.next(&segment, self.seen);
        if next.is_err() && self.store.log_generation() != self.generation {
            // A refresh of the replica replaces the files. The stream continues after it.
            self.segment = None;
            self.tail.close();
            return Ok(None);
        }
        // The segment may have been dropped before it was opened.
        let next = next.or_else(|error| {
            self.store.check_changes(self.seen).and_then(|()| Err(self.store.gone(error)))
        })?;
        if next.last > ready {
            self.seen = ready;
            self.held = Some(next);
            return Ok(None);
        }
        Ok(Some(next))
    }

    /// Returns the segment with the first batch after `seen`.
    fn segment(&mut self) -> Result<Option<TailSegment>> {
        if let Some(segment) = &mut self.segment {
            if segment.last_sequence > self.seen {
                return Ok(Some(*segment));
            }
            if let Some((bytes, last_sequence)) = self.store.live_segment(segment.id, self.seen) {
                (segment.bytes, segment.last_sequence) = (bytes, last_sequence);
                return Ok(Some(*segment));
            }
        }
        let before = self.segment.take();
        self.segment = self.store.changes_segment(self.seen)?;
        let is_further = before.is_some() && self.segment.is_some();
        if is_further && self.store.options.has_bug(PlantedBug::SkipChanges) {
            self.seen += 1;
        }
        Ok(self.segment)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the lock.
        if let Some(id) = self.waker.filter(|_| !self.store.is_forked()) {
            self.store.forget_waker(id);
        }
    }
}

impl Iterator for Changes {
    type Item = Result<ChangeBatch>;

    /// Returns the next batch. Returns `None` if there is none yet, or if the stream has ended.
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_ended {
            return None;
        }
        let next = self.try_next();
        match next {
            Err(Error::Closed) => {
                self.is_ended = true;
                None
            }
            Err(error) => {
                self.is_ended = true;
                Some(Err(error))
            }
            Ok(batch) => batch.map(Ok),
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("position", &self.position).finish_non_exhaustive()
    }
}
