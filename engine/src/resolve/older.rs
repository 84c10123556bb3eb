//! Resolves a key by its older versions, where the newest visible one does not decide.

use bytes::Bytes;
use sievedb_format::{Corruption, Kind, SequenceNumber, Trailer};

use super::{Needed, ReadPoint, Stored, Unsupported, Verdict, Version};

/// Combines merge operands and the value below them into one value.
pub(crate) trait MergeOperator {
    /// Returns the value after `operands`, oldest first, were applied to `base`; `None` if there is
    /// no value below them.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the operands cannot be applied.
    fn merge<'o>(
        &self,
        base: Option<&'o [u8]>,
        operands: impl Iterator<Item = &'o [u8]>,
    ) -> Result<Bytes, Corruption>;
}

/// The merge operator of every keyspace in this release.
#[derive(Debug)]
pub(crate) struct NoMergeOperator;

impl MergeOperator for NoMergeOperator {
    fn merge<'o>(
        &self,
        _: Option<&'o [u8]>,
        _: impl Iterator<Item = &'o [u8]>,
    ) -> Result<Bytes, Corruption> {
        Err(Unsupported(Kind::Merge).into())
    }
}

/// The stored parts of a key's value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Value below the operands.
    base: Option<(Stored, Bytes)>,
    /// Newest first.
    operands: Vec<Bytes>,
}

impl Resolved {
    /// Reads the versions of a key, newest first, until they decide what a reader at `at` sees.
    ///
    /// `cover` is the newest range tombstone, as in [`ReadPoint::resolve`]. `next` returns the
    /// newest version whose trailer is at most the one it is given, with its stored value.
    ///
    /// # Errors
    ///
    /// The errors of `next`.
    pub(crate) fn read<E>(
        at: ReadPoint,
        cover: SequenceNumber,
        mut next: impl FnMut(Trailer) -> Result<Option<(Trailer, Version, Bytes)>, E>,
    ) -> Result<Self, E> {
        let (mut base, mut operands) = (None, Vec::new());
        let mut target = Trailer::seek(at.sequence);
        while let Some((trailer, version, stored)) = next(target)? {
            debug_assert!(trailer <= target, "versions come newest first");
            match at.resolve(version, || cover) {
                Verdict::Value(place) => {
                    base = Some((place, stored));
                    break;
                }
                Verdict::Deleted => break,
                Verdict::MoreNeeded(Needed::Operand) => operands.push(stored),
                Verdict::MoreNeeded(Needed::Invisible) => {}
            }
            target = trailer.older();
        }
        Ok(Self { base, operands })
    }

    /// # Errors
    ///
    /// The error of `operator`, and [`Corruption::Unsupported`] for a value in a blob file.
    pub(crate) fn into_value(
        self,
        operator: &impl MergeOperator,
    ) -> Result<Option<Bytes>, Corruption> {
        let base = match self.base {
            Some((Stored::Blob, _)) => return Err(Unsupported(Kind::BlobReference).into()),
            Some((Stored::Inline, value)) => Some(value),
            None => None,
        };
        if self.operands.is_empty() {
            return Ok(base);
        }
        let oldest_first = self.operands.iter().rev().map(|operand| &**operand);
        operator.merge(base.as_deref(), oldest_first).map(Some)
    }
}
