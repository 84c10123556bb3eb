//! The condition of a write that depends on many keys and ranges.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use sievedb_format::SequenceNumber;

use super::{
    read_set::ReadSet,
    reads::{Reads, ReadsOf},
};
use crate::{
    Error, Result,
    commit::{KeySlot, Placed, Validate, Verdict, WatchId, WrittenKey},
    planted::PlantedBug,
    read::{written::ReadKey, written_range::first_written},
    store::Store,
};

/// Maximum number of checks by slots before writes are compared key by key. Bounds the wait: other
/// keys of the slots may be written continuously.
const SLOT_CHECKS_MAX: u32 = 2;

/// Holds if no key and no range of a [`ReadSet`] was written after a snapshot, which stays open.
///
/// Under the placement lock it compares sequence numbers of [slots](KeySlot). A slot without a
/// write since the last check needs nothing else. The keys of other slots are searched without the
/// lock, in memtables and tables with entries after the snapshot. Then the condition is checked
/// again.
///
/// Ranges have no slots. They are searched without the lock, and again after a watched write that
/// does not decide. A watch compares the writes placed since.
///
/// Source: Kung and Robinson, "On Optimistic Methods for Concurrency Control", ACM Transactions on
/// Database Systems 6(2), 1981: the read set is validated against later writes, in commit order.
pub(crate) struct Unchanged<'a> {
    store: &'a Store,
    reads: Arc<Reads>,
    /// Slots of all keys, ascending.
    slots: Vec<KeySlot>,
    /// Sequence number of the snapshot.
    after: SequenceNumber,
    /// Writes up to this sequence number were compared, or are to decide.
    checked: SequenceNumber,
    slot_checks: u32,
    watch: Option<WatchId>,
    open: Option<Undecided>,
    conflict: Option<Conflict>,
}

/// Keys and ranges that the next [`decide`](Validate::decide) searches for later versions.
#[derive(Debug)]
struct Undecided {
    /// Versions up to this sequence number were searched for.
    after: SequenceNumber,
    /// Searched first.
    key: Option<WrittenKey>,
    /// Slots of the keys, ascending. `None` for all keys.
    slots: Option<Vec<KeySlot>>,
    /// All ranges are searched.
    has_ranges: bool,
}

/// A key that was read, and written after the snapshot.
#[derive(Debug)]
struct Conflict {
    keyspace: String,
    key: Bytes,
}

impl<'a> Unchanged<'a> {
    /// Creates the condition for `set`, which was read by a snapshot at `after`. Searches its
    /// ranges.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; errors of reading.
    pub(crate) fn new(store: &'a Store, set: ReadSet, after: SequenceNumber) -> Result<Self> {
        let reads = Reads::new(set, !store.options.has_bug(PlantedBug::SkipRangeValidation));
        let of_keys = |reads: &ReadsOf| {
            let id = reads.of.tree.id;
            reads.of.keys.values().map(move |&hash| KeySlot::new(id, hash)).collect::<Vec<_>>()
        };
        let mut slots: Vec<_> = reads.0.iter().flat_map(of_keys).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut unchanged = Self {
            store,
            reads: Arc::new(reads),
            slots,
            after,
            checked: after,
            slot_checks: 0,
            watch: None,
            open: None,
            conflict: None,
        };
        unchanged.search_ranges()?;
        match unchanged.take_conflict() {
            Some(conflict) => Err(conflict),
            None => Ok(unchanged),
        }
    }

    /// Returns the error for the key of the failed condition.
    pub(crate) fn take_conflict(&mut self) -> Option<Error> {
        let Conflict { keyspace, key } = self.conflict.take()?;
        Some(Error::Conflict { keyspace, key })
    }

    /// Searches the ranges, if there are any, and begins to watch later writes.
    fn search_ranges(&mut self) -> Result<()> {
        if self.reads.0.iter().all(|reads| reads.ranges.is_empty()) {
            return Ok(());
        }
        let store = self.store;
        store.writer.look_at_placed(|placed| {
            let slots = Some(self.written_slots(placed));
            self.open = Some(Undecided { after: self.after, key: None, slots, has_ranges: true });
            self.begin_watch(placed);
        });
        self.decide()
    }

    /// Begins to compare later writes key by key, beginning with those in flight.
    fn begin_watch(&mut self, placed: &mut Placed<'_>) {
        debug_assert!(self.watch.is_none(), "one watch is enough");
        self.checked = placed.visible();
        self.watch = Some(placed.watch(Arc::clone(&self.reads) as _));
    }

    /// Returns the slots with a write that was not compared yet.
    fn written_slots(&self, placed: &Placed<'_>) -> Vec<KeySlot> {
        let is_written = |slot: &KeySlot| placed.last_in_slot(*slot) > self.checked;
        self.slots.iter().copied().filter(is_written).collect()
    }

    /// Checks by the watch. The first written key usually decides. Otherwise its write failed, or
    /// was to a range without such a key: all are searched.
    fn check_watched(&mut self, placed: &mut Placed<'_>, watch: WatchId) -> Verdict {
        let (key, after) = (placed.take_watched(watch), self.checked);
        self.checked = placed.last_placed();
        if key.is_none() {
            return Verdict::Holds;
        }
        self.open = Some(Undecided { after, key, slots: None, has_ranges: true });
        Verdict::Undecided(self.checked)
    }

    /// Checks by slots.
    fn check_slots(&mut self, placed: &mut Placed<'_>) -> Verdict {
        let (written, after) = (self.written_slots(placed), self.checked);
        let Some(wait) = written.iter().map(|&slot| placed.last_in_slot(slot)).max() else {
            return Verdict::Holds;
        };
        // The other slots have no write since, and those in `written` are searched.
        self.checked = placed.last_placed();
        if self.slot_checks == SLOT_CHECKS_MAX {
            self.begin_watch(placed);
        }
        self.slot_checks += 1;
        self.open = Some(Undecided { after, key: None, slots: Some(written), has_ranges: false });
        Verdict::Undecided(wait)
    }

    fn is_written(
        &self,
        reads: &ReadsOf,
        key: &[u8],
        hash: u64,
        after: SequenceNumber,
    ) -> Result<bool> {
        let counters = self.store.tables.counters.local();
        let view = reads.of.tree.view();
        if view.unlinked_to > self.after {
            // The write may have failed meanwhile.
            return Ok(true);
        }
        // Writes in flight are no conflicts yet: a retry would begin before they are visible.
        let at = self.store.writer.visible();
        ReadKey { key, hash, after }.is_written(&view, at, counters)
    }

    /// Returns the first written key of those that `open` names.
    fn first_written_key(&self, reads: &ReadsOf, open: &Undecided) -> Result<Option<Bytes>> {
        let id = reads.of.tree.id;
        let is_due = |hash| match &open.slots {
            Some(slots) => slots.binary_search(&KeySlot::new(id, hash)).is_ok(),
            None => true,
        };
        for (key, &hash) in &reads.of.keys {
            if is_due(hash) && self.is_written(reads, key, hash, open.after)? {
                return Ok(Some(key.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the first key of the ranges that was written after `after`.
    fn first_written_of_ranges(
        &self,
        reads: &ReadsOf,
        after: SequenceNumber,
    ) -> Result<Option<Bytes>> {
        let view = reads.of.tree.view().kept().clone();
        if view.unlinked_to > self.after && !reads.ranges.is_empty() {
            return Ok(Some(reads.of.first_key().cloned().unwrap_or_default()));
        }
        let span = (after, self.store.writer.visible());
        let directory: Arc<Path> = self.store.tables.folder.as_path().into();
        for bounds in reads.ranges.iter() {
            let first = first_written(&view, bounds, span, &directory)?;
            if first.is_some() {
                return Ok(first);
            }
        }
        Ok(None)
    }

    fn find_conflict(&self, open: &Undecided) -> Result<Option<Conflict>> {
        let conflict =
            |reads: &ReadsOf, key: Bytes| Some(Conflict { keyspace: reads.of.tree.name(), key });
        if let Some(WrittenKey { keyspace, key: Some((key, hash)) }) = &open.key {
            let reads = &self.reads.0[*keyspace];
            if self.is_written(reads, key, *hash, open.after)? {
                return Ok(conflict(reads, key.clone()));
            }
        }
        for reads in &self.reads.0 {
            let mut written = self.first_written_key(reads, open)?;
            if written.is_none() && open.has_ranges {
                written = self.first_written_of_ranges(reads, open.after)?;
            }
            if let Some(key) = written {
                return Ok(conflict(reads, key));
            }
        }
        Ok(None)
    }
}

impl Validate for Unchanged<'_> {
    fn check(&mut self, placed: &mut Placed<'_>) -> Result<Verdict> {
        if self.conflict.is_some() {
            return Ok(Verdict::Fails);
        }
        for reads in &self.reads.0 {
            let tree = &reads.of.tree;
            tree.check()?;
            if let Some(clear) = tree.clear_in_flight() {
                return Ok(Verdict::Undecided(clear));
            }
            if tree.view().cleared > self.after {
                // The clear removed every key that was read.
                let key = reads.of.first_key().cloned().unwrap_or_default();
                self.conflict = Some(Conflict { keyspace: tree.name(), key });
                return Ok(Verdict::Fails);
            }
        }
        let verdict = match self.watch {
            Some(watch) => self.check_watched(placed, watch),
            None => self.check_slots(placed),
        };
        match verdict {
            Verdict::Undecided(last)
                if last > placed.visible()
                    && self.store.options.has_bug(PlantedBug::SkipInFlightValidation) =>
            {
                Ok(Verdict::Holds)
            }
            verdict => Ok(verdict),
        }
    }

    fn decide(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            debug_assert!(open.slots.iter().all(|slots| slots.is_sorted()), "slots are searched");
            self.conflict = self.find_conflict(&open)?;
        }
        Ok(())
    }
}

impl Drop for Unchanged<'_> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.store.writer.placement().end_watch(watch);
        }
    }
}
