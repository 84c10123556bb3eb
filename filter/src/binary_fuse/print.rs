//! Fingerprints of 8 or 16 bits of a key's hash.

use core::fmt::Debug;
use core::ops::BitXor;

use crate::page_vec::PageVec;

/// A fingerprint: `u8` or `u16`. Sealed, because it cannot be named outside of this crate.
pub trait Print: Copy + Debug + Default + Eq + BitXor<Output = Self> + Send + Sync {
    /// Bits of a fingerprint.
    const BITS: u32;

    /// Returns the highest bits of `word`.
    fn of(word: u64) -> Self;

    /// Appends the stored form of `prints`.
    fn put_all(prints: &[Self], bytes: &mut PageVec<u8>);

    /// Reads the stored form.
    fn take_all(bytes: &[u8]) -> impl ExactSizeIterator<Item = Self>;
}

impl Print for u8 {
    const BITS: u32 = Self::BITS;

    #[inline(always)]
    fn of(word: u64) -> Self {
        (word >> (u64::BITS - Self::BITS)) as Self
    }

    fn put_all(prints: &[Self], bytes: &mut PageVec<u8>) {
        bytes.extend_from_slice(prints);
    }

    fn take_all(bytes: &[u8]) -> impl ExactSizeIterator<Item = Self> {
        bytes.iter().copied()
    }
}

impl Print for u16 {
    const BITS: u32 = Self::BITS;

    #[inline(always)]
    fn of(word: u64) -> Self {
        (word >> (u64::BITS - Self::BITS)) as Self
    }

    fn put_all(prints: &[Self], bytes: &mut PageVec<u8>) {
        bytes.extend(prints.iter().flat_map(|print| print.to_le_bytes()));
    }

    fn take_all(bytes: &[u8]) -> impl ExactSizeIterator<Item = Self> {
        let (prints, _) = bytes.as_chunks();
        prints.iter().map(|bytes| Self::from_le_bytes(*bytes))
    }
}
