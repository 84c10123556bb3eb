//! Any filter of a table, told apart by an enum.
//!
//! An enum, not a trait object: a lookup asks one filter per candidate table, and the branch over a
//! handful of kinds is cheaper than an indirect call.

use crate::blocked_bloom::BlockedBloom;
use crate::decode_error::DecodeError;
use crate::filter_block::{self, Expected, FilterKind};
use crate::ribbon::{Asked, Ribbon};

/// A table's filter in memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TableFilter {
    /// One cache line per question.
    BlockedBloom(BlockedBloom),
    /// Two thirds of the memory.
    Ribbon(Ribbon),
}

impl TableFilter {
    /// Reads a filter block; the same as [`filter_block::decode`].
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the filter must not be used. It then means "maybe" for every key.
    pub fn decode(bytes: &[u8], expected: Expected) -> Result<Self, DecodeError> {
        filter_block::decode(bytes, expected)
    }

    /// Returns `false` only if the table holds no key with this hash.
    #[inline]
    #[must_use]
    pub fn may_contain_hash(&self, hash: u64) -> bool {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_hash(hash),
            Self::Ribbon(filter) => filter.may_contain_hash(hash),
        }
    }

    /// The same, for a hash that many filters are asked for.
    #[inline]
    pub(crate) fn may_contain_asked(&self, asked: Asked) -> bool {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_hash(asked.hash),
            Self::Ribbon(filter) => filter.may_contain_asked(asked),
        }
    }

    /// Starts to load what [`may_contain_hash`](Self::may_contain_hash) will read.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        match self {
            Self::BlockedBloom(filter) => filter.prefetch(hash),
            Self::Ribbon(filter) => filter.prefetch(hash),
        }
    }

    /// Sets each of `answers` to what [`may_contain_hash`](Self::may_contain_hash) says of the hash
    /// at its place, with many loads from memory under way at once.
    ///
    /// # Panics
    ///
    /// If there are not as many answers as hashes.
    pub fn may_contain_hashes(&self, hashes: &[u64], answers: &mut [bool]) {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_hashes(hashes, answers),
            Self::Ribbon(filter) => filter.may_contain_hashes(hashes, answers),
        }
    }

    /// Bytes that the filter keeps in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::BlockedBloom(filter) => filter.memory_bytes(),
            Self::Ribbon(filter) => filter.memory_bytes(),
        }
    }

    /// Expected false-positive rate, from 0 to 1.
    #[must_use]
    pub fn expected_fpr(&self) -> f64 {
        match self {
            Self::BlockedBloom(filter) => filter.expected_fpr(),
            Self::Ribbon(filter) => filter.expected_fpr(),
        }
    }

    /// Keys that it was built over.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        match self {
            Self::BlockedBloom(filter) => filter.key_count(),
            Self::Ribbon(filter) => filter.key_count(),
        }
    }

    /// What the filter is.
    #[must_use]
    pub fn kind(&self) -> FilterKind {
        match self {
            Self::BlockedBloom(_) => FilterKind::BlockedBloom,
            Self::Ribbon(_) => FilterKind::Ribbon,
        }
    }
}
