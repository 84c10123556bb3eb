//! Resolves a key by its older versions, if the newest visible one does not decide.

use bytes::Bytes;
use sievedb_format::{SequenceNumber, Trailer};

use super::{Needed, ReadPoint, Stored, Verdict, Version};

/// The stored parts of a key's value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Value below the operands.
    base: Option<(Stored, Bytes)>,
    /// Time at which the base expires, in milliseconds of the store clock.
    expiry_ms: Option<u64>,
    /// Operands with their sequence numbers, newest first.
    operands: Vec<(SequenceNumber, Bytes)>,
}

impl Resolved {
    /// Reads the versions of a key, newest first, until they determine what a reader at `at` sees.
    ///
    /// The clock of `at` is fixed. `cover` is the newest range tombstone, as in
    /// [`ReadPoint::resolve`]. `next` returns the newest version whose trailer is at most the given
    /// one, with its stored value. Ends at `operands_max` operands: one shows that the key has a
    /// value.
    ///
    /// # Errors
    ///
    /// The errors of `next`.
    pub(crate) fn read<E>(
        at: ReadPoint,
        cover: SequenceNumber,
        operands_max: usize,
        mut next: impl FnMut(Trailer) -> Result<Option<(Trailer, Version, Bytes)>, E>,
    ) -> Result<Self, E> {
        let (mut base, mut expiry_ms, mut operands) = (None, None, Vec::new());
        let mut target = Trailer::seek(at.sequence);
        while let Some((trailer, version, stored)) = next(target)? {
            debug_assert!(trailer <= target, "versions come newest first");
            match at.resolve(version, || cover) {
                Verdict::Value(place) => {
                    base = Some((place, stored.slice(version.prefix_bytes()..)));
                    expiry_ms = version.expiry_ms();
                    break;
                }
                Verdict::Deleted => break,
                Verdict::MoreNeeded(Needed::Operand) => {
                    operands.push((trailer.sequence(), stored));
                    if operands.len() >= operands_max {
                        break;
                    }
                }
                Verdict::MoreNeeded(Needed::Invisible) => {}
            }
            target = trailer.older();
        }
        Ok(Self { base, expiry_ms, operands })
    }

    /// Returns the operands with their sequence numbers, newest first.
    pub(crate) fn operands(&self) -> &[(SequenceNumber, Bytes)] {
        &self.operands
    }

    /// Returns the expiry of the value below the operands, in milliseconds of the store clock.
    /// Returns `None` if it never expires, or without a value.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        self.expiry_ms
    }

    /// Returns `true` if the key has a value.
    pub(crate) fn has_value(&self) -> bool {
        self.base.is_some() || !self.operands.is_empty()
    }

    /// Returns the value of the key; `fold` applies operands, oldest first, to the value below
    /// them.
    ///
    /// # Errors
    ///
    /// The errors of `fold` and `read_blob`, which reads the value that a reference names.
    pub(crate) fn into_value<E>(
        self,
        read_blob: impl FnOnce(&[u8]) -> Result<Bytes, E>,
        fold: impl FnOnce(Option<&[u8]>, &[&[u8]]) -> Result<Bytes, E>,
    ) -> Result<Option<Bytes>, E> {
        let base = match self.base {
            Some((Stored::Blob, reference)) => Some(read_blob(&reference)?),
            Some((Stored::Inline, value)) => Some(value),
            None => None,
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        let oldest_first = self.operands.iter().rev();
        let oldest_first: Vec<&[u8]> = oldest_first.map(|(_, operand)| &**operand).collect();
        fold(base.as_deref(), &oldest_first).map(Some)
    }
}
