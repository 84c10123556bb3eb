//! Which versions a flush or a compaction keeps.
//!
//! # Who reads
//!
//! The sequence numbers of the live snapshots cut the history into stripes: the oldest snapshot and
//! all before it, then up to the next snapshot, and so on; the top stripe is what is newer than
//! every snapshot. A reader at a snapshot sees of each key the newest version in its stripe or,
//! failing that, in the stripes below. So of each stripe only the newest version of a key can be
//! seen.
//!
//! In the top stripe, too: whoever reads there without being in the list sees all of it, so the
//! newest version is enough for them. This rests on three duties of the engine:
//!
//! 1. Entries are published before they are flushed, so every entry of an input is at or below the
//!    visible sequence number.
//! 2. A reader that is not in the list takes its read view first and the visible sequence number
//!    then. It cannot meet the output of a flush or compaction and be older than its entries.
//! 3. A snapshot takes the visible sequence number and enters the list under the lock under which a
//!    flush or compaction copies the list, after its inputs are complete. So one that is missing in
//!    the copy is as new as every input.
//!
//! # Tombstones
//!
//! A tombstone has done its work once nothing below it is left to hide: no older version in this
//! merge, none in a deeper level. In the oldest stripe the older versions in the merge go with it,
//! so there the deeper levels decide. In a newer stripe a tombstone stays, even with nothing to
//! hide: a transaction that reads at an older snapshot learns from it that the key has changed
//! since.
//!
//! # Sequence numbers
//!
//! A put of the oldest stripe with no older version below it is seen by every reader and hides
//! nothing, so its sequence number says nothing any more. It becomes 0, before all writes: blocks
//! whose numbers are all alike store none, which saves 3 or 4 bytes an entry that do not compress.
//! RocksDB does the same. Compactions do so, flushes do not: after a crash the numbers in tables
//! tell how far the history went.

use std::cmp::Ordering;

use bytes::Bytes;
use sievedb_format::{InternalKey, SEQUENCE_MAX, SequenceNumber, Trailer};

use super::interruption::Interruption;
use crate::{
    Error, Result,
    iter::cursor::{Cursor, out_of_order},
    resolve::ReadPoint,
};

/// The entries of a cursor that some reader may need, in order and in one pass.
///
/// Allocates nothing per key. `is_bottom` tells of a user key whether no older run outside of the
/// merge may hold it; it is asked in ascending order, for the oldest stripe only and, unless the
/// stream is [`settling`](Self::settling), for tombstones only.
#[derive(Debug)]
pub(crate) struct RetainStream<C, B, S> {
    cursor: C,
    interruption: Interruption<S>,
    /// Ascending, without repetition.
    snapshots: Vec<SequenceNumber>,
    is_bottom: B,
    /// Whether sequence numbers that say nothing become 0.
    settles: bool,
    /// The version looked at last: its user key and stripe.
    user_key: Vec<u8>,
    stripe: Option<usize>,
    /// No version of `user_key` was yielded before the current one.
    is_first_of_key: bool,
    is_positioned: bool,
    /// No reader needs the sequence number of the current entry.
    is_settled: bool,
}

impl<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool> RetainStream<C, B, S> {
    /// An unpositioned stream over `cursor` for the readers at `snapshots`, in any order, and those
    /// at the visible sequence number. It fails with [`Closed`](Error::Closed) soon after `stops`
    /// returns `true`.
    pub(crate) fn new(
        cursor: C,
        mut snapshots: Vec<SequenceNumber>,
        is_bottom: B,
        stops: S,
    ) -> Self {
        snapshots.sort_unstable();
        snapshots.dedup();
        Self {
            cursor,
            interruption: Interruption::new(stops),
            snapshots,
            is_bottom,
            settles: false,
            user_key: Vec::new(),
            stripe: None,
            is_first_of_key: true,
            is_positioned: false,
            is_settled: false,
        }
    }

    /// The same stream, which gives sequence number 0 to entries whose own says nothing any more.
    pub(crate) fn settling(self) -> Self {
        Self { settles: true, ..self }
    }

    /// Moves to the first entry that is kept.
    ///
    /// # Errors
    ///
    /// What the cursor fails with, and [`Corrupt`](crate::Error::Corrupt) if an entry is out of
    /// order or of a kind that cannot be applied: what it would hide must not be dropped. The
    /// stream is unpositioned then, and no output may be installed.
    pub(crate) fn seek_to_first(&mut self) -> Result<()> {
        self.is_positioned = false;
        self.stripe = None;
        self.cursor.seek_to_first()?;
        self.find()
    }

    /// Moves to the next entry that is kept. Only when positioned.
    ///
    /// # Errors
    ///
    /// As [`seek_to_first`](Self::seek_to_first).
    pub(crate) fn next(&mut self) -> Result<()> {
        self.is_positioned = false;
        self.is_first_of_key = false;
        self.step()?;
        self.find()
    }

    /// The current internal key, with the sequence number that it is to be stored with; `None` when
    /// unpositioned.
    pub(crate) fn key(&self) -> Option<InternalKey<'_>> {
        let key = self.cursor.key().filter(|_| self.is_positioned)?;
        if self.is_settled {
            return Some(InternalKey::new(key.user_key, Trailer::new(0, key.trailer.kind())));
        }
        Some(key)
    }

    /// The current value, without a copy. Only when positioned.
    pub(crate) fn value(&self) -> Bytes {
        self.cursor.value()
    }

    /// Whether an output table may end before the current entry: all versions of a user key belong
    /// into one table.
    pub(crate) fn may_split(&self) -> bool {
        self.is_first_of_key
    }

    /// Moves the cursor to the next entry, unless the merge must stop.
    fn step(&mut self) -> Result<()> {
        self.interruption.check(self.cursor.value_ref().len())?;
        self.cursor.next()
    }

    /// Goes from the entry under the cursor, it included, to the next that is kept.
    fn find(&mut self) -> Result<()> {
        while let Some(key) = self.cursor.key() {
            let sequence = key.trailer.sequence();
            let stripe = self.snapshots.partition_point(|&snapshot| snapshot < sequence);
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
            }
            if newer.is_some_and(|newer| newer < stripe) {
                return Err(out_of_order(&self.cursor));
            }
            self.stripe = Some(stripe);
            if newer != Some(stripe) {
                let newest_reader = self.snapshots.get(stripe).copied().unwrap_or(SEQUENCE_MAX);
                // An input with range tombstones is refused before the merge.
                let has_value = ReadPoint::new(newest_reader).has_value(key.trailer, || 0);
                let has_value = has_value
                    .map_err(|refused| Error::corrupt(self.cursor.path(), 0, refused.into()))?;
                let asks = stripe == 0 && (self.settles || !has_value);
                let is_oldest = asks && (self.is_bottom)(&self.user_key);
                self.is_settled = has_value && is_oldest;
                if has_value || !is_oldest {
                    self.is_positioned = true;
                    break;
                }
            }
            self.step()?;
        }
        Ok(())
    }
}
