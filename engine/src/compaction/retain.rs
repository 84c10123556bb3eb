//! The versions that a flush or a compaction keeps.
//!
//! # Readers
//!
//! The sequence numbers of the live snapshots cut the history into stripes. The lowest stripe ends
//! at the oldest snapshot; the top stripe is newer than every snapshot. A reader at a snapshot sees
//! the newest version of a key in its stripe or, failing that, in the stripes below. So only the
//! newest version of a key in each stripe is visible.
//!
//! This holds for the top stripe too: readers there that are not in the list see all of it. It
//! rests on three duties of the engine:
//!
//! 1. Entries are published before they are flushed, so every entry of an input is at or below the
//!    visible sequence number.
//! 2. A reader that is not in the list takes its read view first and the visible sequence number
//!    then. It cannot meet the output of a flush or compaction and be older than its entries.
//! 3. A snapshot takes the visible sequence number and enters the list under the lock of the list.
//!    A flush or compaction copies the list under this lock, after its inputs are complete. So a
//!    snapshot that is missing in the copy is as new as every input.
//!
//! # Tombstones
//!
//! A tombstone is dropped if it hides no older version, in this merge or in a deeper level. In the
//! oldest stripe the older versions in the merge are dropped with it, so the deeper levels decide.
//! In a newer stripe a tombstone stays: a transaction at an older snapshot detects by it that the
//! key has changed since.
//!
//! A version is dropped if a range tombstone of its own stripe covers it: see
//! [`ranges`](super::ranges).
//!
//! # Merge operands
//!
//! The operands of a key within one stripe that are newer than every other version there are
//! applied to the put or tombstone below them. If no older version exists anywhere, they are
//! applied to an absent value. The result is a put with the sequence number of the newest operand.
//! Otherwise neighbors are merged into fewer operands, if the operator can do so. Operands are
//! never merged across a snapshot. If the operator fails, all versions that it needs are kept.
//!
//! # Expiry
//!
//! A put that has expired for every reader that may see it counts as a tombstone. It is dropped
//! like one, or replaced by a tombstone with its sequence number.
//!
//! # Compaction filter
//!
//! The filter of the keyspace may remove or replace the newest value of a key, if it is newer than
//! every snapshot. The version keeps its sequence number, as a tombstone or with the new value. See
//! [`filtering`](super::filtering).
//!
//! # Sequence numbers
//!
//! A put of the oldest stripe with no older version below it is visible to every reader and hides
//! nothing. Compactions set its sequence number to 0, as RocksDB does. Blocks with equal numbers
//! store none, which saves 3 or 4 incompressible bytes an entry. A put keeps its number while an
//! older range tombstone stays, so that it does not become older than that. Flushes keep the
//! numbers: after a crash those in tables show how far the history went.

mod values;

use std::{cmp::Ordering, collections::VecDeque, sync::Arc};

use bytes::Bytes;
use sievedb_format::{InternalKey, RangeTombstone, SEQUENCE_MAX, SequenceNumber, Trailer};

use super::{filtering::Filtering, ranges::RangeFragments, readers::Readers};
use crate::{
    Error, Result,
    fold::OperatorCell,
    iter::cursor::{Cursor, out_of_order},
    resolve::{Seen, is_tombstone, tombstone_for},
    table::{
        blobs::Blob,
        cache_room::{ShareTaken, WorkerShare},
    },
};

/// Entries and bytes of values between two checks whether to stop the merge: about 0.3 ms of a
/// compaction.
const CHECK_ENTRIES: u32 = 1024;
const CHECK_BYTES: usize = 1 << 20;

/// The entries of a cursor that some reader may need, in order and in one pass.
///
/// Allocates nothing per key, except for merge operands. `is_bottom` returns `true` if no older run
/// outside of the merge may hold a user key. It is called in ascending order, and only for the
/// oldest stripe. Unless the stream is [`settling`](Self::settling), it is called only for
/// tombstones and merge operands.
#[derive(Debug)]
pub(crate) struct RetainStream<'f, C, B, S> {
    cursor: C,
    /// User key to begin at; empty for the first one.
    start: Vec<u8>,
    stops: S,
    /// Entries, and bytes of values read or moved, since the last check.
    unchecked: (u32, usize),
    readers: Readers,
    is_bottom: B,
    /// The range tombstones of the inputs.
    ranges: RangeFragments,
    /// Set sequence numbers that no reader needs to 0.
    settles: bool,
    /// The last version read: its user key and stripe.
    user_key: Vec<u8>,
    stripe: Option<usize>,
    /// A version decided the stripe, so older versions of the stripe are hidden.
    is_decided: bool,
    operator: OperatorCell,
    filtering: Option<&'f mut Filtering>,
    /// Charged with values from blob files while they are read as a whole, and with operands.
    share: Option<Arc<WorkerShare>>,
    operands_charge: Option<ShareTaken>,
    /// Operands of `user_key` stay, so older versions are not its value, and the filter sees none.
    keeps_operands: bool,
    /// Entries of `user_key` that are not in an input, the current one first. Entries under the
    /// cursor follow.
    made: VecDeque<(Trailer, Bytes)>,
    /// No version of `user_key` was yielded before the current one.
    is_first_of_key: bool,
    is_positioned: bool,
    /// No reader needs the sequence number of the current entry.
    is_settled: bool,
    /// The current entry has expired, or the filter removed it. A tombstone takes its place.
    is_removed: bool,
}

impl<'f, C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool> RetainStream<'f, C, B, S> {
    /// Creates an unpositioned stream over `cursor` for these readers. It fails with
    /// [`Closed`](Error::Closed) soon after `stops` returns `true`. A caller that stops it for
    /// another reason replaces the error.
    pub(crate) fn new(cursor: C, readers: Readers, is_bottom: B, stops: S) -> Self {
        Self {
            cursor,
            start: Vec::new(),
            stops,
            unchecked: (0, 0),
            readers,
            is_bottom,
            ranges: RangeFragments::default(),
            settles: false,
            user_key: Vec::new(),
            stripe: None,
            is_decided: false,
            operator: OperatorCell::default(),
            filtering: None,
            share: None,
            operands_charge: None,
            keeps_operands: false,
            made: VecDeque::new(),
            is_first_of_key: true,
            is_positioned: false,
            is_settled: false,
            is_removed: false,
        }
    }

    /// Makes the stream begin at the user key `start`.
    pub(crate) fn from(self, start: &[u8]) -> Self {
        Self { start: start.to_vec(), ..self }
    }

    /// Makes the stream set sequence numbers that no reader needs to 0.
    pub(crate) fn settling(self) -> Self {
        Self { settles: true, ..self }
    }

    /// Makes the stream apply merge operands by this operator. Without one it keeps them.
    pub(crate) fn folding(self, operator: OperatorCell) -> Self {
        Self { operator, ..self }
    }

    /// Makes the stream show values to a compaction filter.
    pub(crate) fn filtered_by(self, filtering: Option<&'f mut Filtering>) -> Self {
        Self { filtering, ..self }
    }

    /// Makes the stream charge values that it reads from blob files, and many operands of a key, to
    /// `share`.
    pub(crate) fn charging(self, share: &Arc<WorkerShare>) -> Self {
        Self { share: Some(Arc::clone(share)), ..self }
    }

    /// Adds the range tombstones of the inputs, cut for the same snapshots.
    pub(crate) fn with_ranges(self, ranges: RangeFragments) -> Self {
        Self { ranges, ..self }
    }

    /// Returns the range tombstones to write, ascending.
    pub(crate) fn kept_ranges(&self) -> Vec<RangeTombstone> {
        self.ranges.kept()
    }

    /// Moves to the first kept entry.
    ///
    /// # Errors
    ///
    /// Errors of the cursor, and [`Corrupt`](crate::Error::Corrupt) if an entry is out of order or
    /// of an unsupported kind: versions that it hides must not be dropped. The stream is
    /// unpositioned then, and no output may be installed.
    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.is_positioned = false;
        self.stripe = None;
        self.made.clear();
        match self.start.is_empty() {
            true => self.cursor.seek_to_first()?,
            false => self.cursor.seek(InternalKey::seek(&self.start, SEQUENCE_MAX))?,
        }
        self.find()
    }

    /// Moves to the next kept entry. Only when positioned.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub(crate) fn next(&mut self) -> Result<()> {
        self.is_positioned = false;
        self.is_first_of_key = false;
        if self.made.is_empty() {
            self.step()?;
        } else {
            self.made.pop_front();
            self.is_positioned = !self.made.is_empty();
            if self.is_positioned {
                return Ok(());
            }
            self.operands_charge = None;
        }
        self.find()
    }

    /// Returns the current internal key, with the sequence number to store. Returns `None` when
    /// unpositioned.
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        if !self.is_positioned {
            return None;
        }
        let key = match self.made.front() {
            Some(&(trailer, _)) => InternalKey::new(&self.user_key, trailer),
            None => self.cursor.key()?,
        };
        if self.is_removed {
            return Some(InternalKey::new(key.user_key, tombstone_for(key.trailer)));
        }
        if self.is_settled {
            return Some(InternalKey::new(key.user_key, Trailer::new(0, key.trailer.kind())));
        }
        Some(key)
    }

    /// Returns the current value, without a copy. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        match self.made.front() {
            _ if self.is_removed => Bytes::new(),
            Some((_, value)) => value.clone(),
            None => self.cursor.value(),
        }
    }

    /// Returns the location of the current value, a blob reference. Only when positioned.
    ///
    /// # Errors
    ///
    /// As [`Cursor::blob`].
    pub(crate) fn blob(&self) -> Result<Blob> {
        debug_assert!(self.made.is_empty(), "made entries have their values");
        self.cursor.blob()
    }

    /// Returns `true` if an output table may end before the current entry: all versions of a user
    /// key are in one table.
    pub(crate) fn may_split(&self) -> bool {
        self.is_first_of_key
    }

    /// Counts `bytes` bytes of a value that the caller moves from one blob file to another.
    ///
    /// # Errors
    ///
    /// [`Closed`](crate::Error::Closed) if the merge must stop.
    pub(crate) fn count_moved(&mut self, bytes: usize) -> Result<()> {
        self.count(0, bytes)
    }

    /// Counts work, and periodically checks whether the merge must stop.
    fn count(&mut self, entries: u32, bytes: usize) -> Result<()> {
        self.unchecked.0 += entries;
        self.unchecked.1 += bytes;
        if self.unchecked.0 >= CHECK_ENTRIES || self.unchecked.1 >= CHECK_BYTES {
            self.unchecked = (0, 0);
            if (self.stops)() {
                return Err(Error::Closed);
            }
        }
        Ok(())
    }

    /// Moves the cursor to the next entry, unless the merge must stop.
    fn step(&mut self) -> Result<()> {
        self.count(1, self.cursor.value_ref().len())?;
        match self.filtering.as_mut().and_then(|filtering| filtering.take_seek()) {
            Some(until) => self.cursor.seek(InternalKey::seek(until, SEQUENCE_MAX)),
            None => self.cursor.next(),
        }
    }

    /// Moves from the entry under the cursor, inclusive, to the next kept one.
    fn find(&mut self) -> Result<()> {
        while let Some(key) = self.cursor.key() {
            let stripe = self.readers.stripe_of(key.trailer.sequence());
            let newer = match self.stripe {
                None => None,
                Some(newer) => match key.user_key.cmp(&self.user_key) {
                    Ordering::Less => return Err(out_of_order(&self.cursor)),
                    Ordering::Equal => Some(newer),
                    Ordering::Greater => None,
                },
            };
            if newer.is_none() {
                self.user_key.clear();
                self.user_key.extend_from_slice(key.user_key);
                self.is_first_of_key = true;
                self.keeps_operands = false;
            }
            if newer != Some(stripe) {
                self.is_decided = false;
            }
            if newer.is_some_and(|newer| newer < stripe) {
                return Err(out_of_order(&self.cursor));
            }
            self.stripe = Some(stripe);
            if !self.is_decided {
                let trailer = key.trailer;
                if self.cover(stripe) > trailer.sequence() {
                    self.is_decided = true;
                    self.step()?;
                    continue;
                }
                let seen = self.seen(trailer, stripe)?;
                let is_skipped = self.is_skipped(trailer);
                match seen {
                    Seen::Operand if !is_skipped => {
                        self.fold(stripe)?;
                        if self.filter_folded(stripe)? {
                            return Ok(());
                        }
                        continue;
                    }
                    _ => {
                        self.is_decided = true;
                        let has_value =
                            seen == Seen::Value && !is_skipped && self.filter(trailer)?;
                        let must_know = stripe == 0 && (self.settles || !has_value);
                        let is_oldest = must_know && (self.is_bottom)(&self.user_key);
                        self.is_settled = has_value
                            && is_oldest
                            && !self.ranges.keeps_older(&self.user_key, trailer.sequence());
                        self.is_removed = !has_value && !is_tombstone(trailer);
                        if has_value || !is_oldest {
                            self.is_positioned = true;
                            break;
                        }
                    }
                }
            }
            self.step()?;
        }
        Ok(())
    }

    /// Returns the newest range tombstone over `user_key` that the newest reader of the stripe
    /// sees; 0 if there is none.
    fn cover(&mut self, stripe: usize) -> SequenceNumber {
        self.ranges.cover(&self.user_key, self.readers.of_stripe(stripe).sequence)
    }

    /// Returns the content of the version under the cursor, with this trailer, for the newest
    /// reader of its stripe.
    fn seen(&mut self, trailer: Trailer, stripe: usize) -> Result<Seen> {
        let (reader, cover) = (self.readers.of_stripe(stripe), self.cover(stripe));
        let seen = reader.seen(trailer, || self.cursor.value_ref(), || cover);
        seen.map_err(|refused| Error::corrupt(self.cursor.path(), 0, refused.into()))
    }
}
