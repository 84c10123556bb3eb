//! The merge operands of a key and the value below them, as a repair copies them.

use bytes::Bytes;
use sievedb_format::{Kind, SequenceNumber, Trailer};

use super::{OlderValues, Saved, doubts::Doubts};
use crate::{
    Error, Result,
    resolve::{ReadPoint, Refused, Seen},
};

/// Versions of a key in one table, from a merge operand down.
pub(super) struct Copied {
    key: Bytes,
    /// Operands, newest first.
    operands: Vec<Bytes>,
    /// Kind and stored value of the version below the operands. `None` if not found yet.
    base: Option<Option<(Kind, Bytes)>>,
    /// Versions of the key may be lost.
    is_older: bool,
    /// The newest known range tombstone over the key, which deletes older versions.
    cover: SequenceNumber,
}

impl Copied {
    pub(super) fn new(key: &[u8], operand: &[u8], is_older: bool, cover: SequenceNumber) -> Self {
        let operands = vec![Bytes::copy_from_slice(operand)];
        Self { key: Bytes::copy_from_slice(key), operands, base: None, is_older, cover }
    }

    /// Adds the next older version of the key.
    ///
    /// # Errors
    ///
    /// [`Refused`]: the version cannot be copied, and may be lost.
    pub(super) fn add(&mut self, trailer: Trailer, value: &[u8]) -> Result<(), Refused> {
        if self.base.is_some() {
            return Ok(());
        }
        let copied = || Bytes::copy_from_slice(value);
        let seen = ReadPoint::AS_STORED.seen(trailer, || value, || self.cover);
        match seen.inspect_err(|_| self.doubt())? {
            Seen::Operand => self.operands.push(copied()),
            Seen::Value => self.base = Some(Some((trailer.kind(), copied()))),
            Seen::Nothing => self.base = Some(None),
        }
        Ok(())
    }

    /// Records that the next version may be newer than the others.
    pub(super) const fn doubt_order(&mut self) {
        self.is_older = true;
    }

    /// Records that versions of the key may be lost.
    pub(super) fn doubt(&mut self) {
        self.is_older |= self.base.is_none();
    }
}

impl Saved {
    /// Copies the versions of a key over older ones. `own` are the doubts of their table, `None` if
    /// other tables may have newer versions.
    pub(super) fn merge(
        &mut self,
        older: OlderValues,
        copied: &Copied,
        own: Option<&Doubts>,
    ) -> Result<()> {
        let Copied { key, operands, base, is_older, .. } = copied;
        debug_assert!(!operands.is_empty());
        // With a base, only versions of the same table can be missing.
        let doubts = own.filter(|_| base.is_some()).unwrap_or(&self.doubts);
        let is_older = *is_older
            || doubts.contain(key)
            || (base.is_none() && self.older.contains(&self.hash(key)));
        let write = |saved: &Self| {
            if let Some(base) = base {
                saved.store(key, base.as_ref().map(|(kind, stored)| (*kind, &**stored)))?;
            }
            operands.iter().rev().try_for_each(|operand| saved.store_operand(key, operand))
        };
        if is_older {
            return self.note_older(older, key, write);
        }
        self.older.remove(&self.hash(key));
        write(self)
    }

    /// Stores a merge operand, even in a keyspace whose operator is unknown here.
    fn store_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.with_room(|keyspace| keyspace.store_operand(key, operand))
    }

    /// Calls `write`. Calls it again with a larger memory budget if required.
    pub(super) fn with_room(&self, write: impl Fn(&crate::Keyspace) -> Result<()>) -> Result<()> {
        match write(&self.keyspace) {
            Err(Error::WriteTooLarge { bytes, .. }) => {
                let store = self.keyspace.open_store().store();
                store.change_memory_budget(|budget| budget.make_room_for(bytes))?;
                write(&self.keyspace)
            }
            stored => stored,
        }
    }
}
