//! Values that a merge changes: it applies merge operands, and shows values to the compaction
//! filter.

use std::{cmp::Ordering, collections::VecDeque};

use bytes::Bytes;
use sievedb_format::Trailer;

use super::RetainStream;
use crate::{
    Result,
    compaction::{
        filtering::Filtered,
        operands::{End, Operands},
    },
    iter::cursor::{Cursor, out_of_order},
    resolve::{Seen, expires_never, is_in_blob_file, prefix_bytes, put_for},
    table::cache_room::ShareTaken,
};

impl<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool> RetainStream<'_, C, B, S> {
    /// Reads the merge operands of `user_key` in the stripe, from the cursor on, and creates the
    /// entries that replace them, at least one.
    #[cold]
    pub(super) fn fold(&mut self, stripe: usize) -> Result<()> {
        debug_assert!(self.made.is_empty() && !self.is_decided, "an open stripe");
        self.is_removed = false;
        let mut operands = Operands::new();
        let mut _charge = None;
        let end = loop {
            let Some(key) = self.cursor.key() else { break End::OfKey };
            match key.user_key.cmp(&self.user_key) {
                Ordering::Less => return Err(out_of_order(&self.cursor)),
                Ordering::Equal => {}
                Ordering::Greater => break End::OfKey,
            }
            let trailer = key.trailer;
            let sequence = trailer.sequence();
            let older = self.readers.stripe_of(sequence);
            if older > stripe || operands.oldest().is_some_and(|oldest| oldest <= sequence) {
                return Err(out_of_order(&self.cursor));
            }
            if older < stripe {
                break End::OfStripe;
            }
            match self.seen(trailer, stripe)? {
                Seen::Operand => {
                    let operand = self.cursor.value_ref();
                    if !operands.has_room(operand) {
                        let needs = operands.make_room(operand, &self.user_key, &self.operator);
                        let Some(bytes) = needs else { break End::OfStripe };
                        self.charge_operands(bytes);
                    }
                    operands.push(sequence, self.cursor.value_ref());
                }
                Seen::Nothing => break End::Base(None),
                Seen::Value if is_in_blob_file(trailer) => {
                    // If the value cannot be read, the operands stay.
                    let Some((value, taken)) = self.read_blob()? else { break End::OfStripe };
                    _charge = taken;
                    break End::Base(Some(value));
                }
                Seen::Value if expires_never(trailer, self.cursor.value_ref()) => {
                    let stored = self.cursor.value();
                    break End::Base(Some(stored.slice(prefix_bytes(trailer.kind())..)));
                }
                // The entry may expire later.
                Seen::Value => break End::OfStripe,
            }
            self.step()?;
        };
        let is_bottom = match &end {
            End::OfKey => (self.is_bottom)(&self.user_key),
            End::Base(_) => stripe == 0 && self.settles && (self.is_bottom)(&self.user_key),
            End::OfStripe => false,
        };
        (self.made, self.is_decided) =
            operands.finish(end, is_bottom, &self.user_key, &self.operator);
        let newest = self.made.front().map_or(0, |(trailer, _)| trailer.sequence());
        self.is_settled = self.is_decided
            && is_bottom
            && stripe == 0
            && self.settles
            && !self.ranges.keeps_older(&self.user_key, newest);
        debug_assert!(!self.made.is_empty(), "an operand was under the cursor");
        self.keeps_operands |= !self.is_decided;
        self.is_positioned = true;
        Ok(())
    }

    /// Charges `bytes` bytes of merge operands, until the last entry made of them is read.
    #[cold]
    fn charge_operands(&mut self, bytes: u64) {
        match (&mut self.operands_charge, &self.share) {
            (Some(charge), _) => charge.set(bytes),
            (none, Some(share)) => *none = Some(share.take(bytes)),
            (None, None) => {}
        }
    }

    /// Reads the value of the blob reference under the cursor as a whole, and charges it until the
    /// charge is dropped. Returns `None` if it cannot be read.
    #[cold]
    fn read_blob(&mut self) -> Result<Option<(Bytes, Option<ShareTaken>)>> {
        let blob = self.cursor.blob()?;
        // Before the read: the merge may stop, or carry out a flush.
        self.count(0, usize::try_from(blob.value_bytes()).unwrap_or(usize::MAX))?;
        let charge = self.share.as_ref().map(|share| share.take(blob.value_bytes()));
        Ok(blob.read_to_rewrite()?.map(|value| (value, charge)))
    }

    /// Returns `true` if a decision of the filter about an earlier key removes this version.
    #[inline]
    pub(super) fn is_skipped(&mut self, trailer: Trailer) -> bool {
        let Some(filtering) = &mut self.filtering else { return false };
        filtering.skips(&self.user_key, trailer.sequence())
    }

    /// Shows the value under the cursor to the filter. Returns `false` if the filter removes it.
    #[inline]
    pub(super) fn filter(&mut self, trailer: Trailer) -> Result<bool> {
        let Some(filtering) = &mut self.filtering else { return Ok(true) };
        if self.keeps_operands || !filtering.may_change(trailer.sequence()) {
            return Ok(true);
        }
        if is_in_blob_file(trailer) {
            // A value that cannot be read stays.
            let Some((value, _charge)) = self.read_blob()? else { return Ok(true) };
            let Some(filtering) = &mut self.filtering else { return Ok(true) };
            let filtered = filtering.decide(&self.user_key, &value)?;
            if let Filtered::Replaced(new) = filtered {
                self.made = VecDeque::from([(put_for(trailer), new.into())]);
                return Ok(true);
            }
            return Ok(filtered != Filtered::Removed);
        }
        let (expiry, value) = self.cursor.value_ref().split_at(prefix_bytes(trailer.kind()));
        let filtered = filtering.decide(&self.user_key, value)?;
        if let Filtered::Replaced(new) = &filtered {
            self.made = VecDeque::from([(trailer, [expiry, new].concat().into())]);
        }
        Ok(filtered != Filtered::Removed)
    }

    /// Shows the value that [`fold`](Self::fold) created, if any, to the filter. Returns `false` if
    /// the filter removes it without a replacement.
    pub(super) fn filter_folded(&mut self, stripe: usize) -> Result<bool> {
        let Some(filtering) = &mut self.filtering else { return Ok(true) };
        let is_value = self.is_decided && !self.keeps_operands;
        let Some((trailer, value)) = self.made.front_mut().filter(|_| is_value) else {
            return Ok(true);
        };
        if !filtering.may_change(trailer.sequence()) {
            return Ok(true);
        }
        match filtering.decide(&self.user_key, value)? {
            Filtered::Kept => {}
            Filtered::Replaced(new) => *value = new.into(),
            Filtered::Removed if stripe == 0 && (self.is_bottom)(&self.user_key) => {
                self.made.clear();
                self.operands_charge = None;
                self.is_positioned = false;
            }
            Filtered::Removed => (self.is_removed, self.is_settled) = (true, false),
        }
        Ok(self.is_positioned)
    }
}
