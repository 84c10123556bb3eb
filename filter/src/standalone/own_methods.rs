//! Methods and trait implementations that the structures share.
//!
//! Trait methods are also inherent ones, so that users need no import. Constructors without a
//! hasher exist only for the default one, so that its type need not be written.

use core::hash::BuildHasher;

use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::io;

use super::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom, StripedBloomFilter,
};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterFull, FilterStats, InsertFilter, KeyFilter};
use crate::hash::hash_with;
#[cfg(feature = "std")]
use crate::saved::LoadError;
use crate::saved::Saved;

macro_rules! of_filter {
    ($($Structure:ident),* $(,)?) => {$(
        impl<S: BuildHasher> KeyFilter for $Structure<S> {
            type Hasher = S;

            fn hasher(&self) -> &S {
                self.hasher()
            }
        }

        impl<S: BuildHasher> $Structure<S> {
            /// Returns `false` only if the key is not in the filter.
            #[doc(alias = "contains")]
            #[inline]
            #[must_use]
            pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
                self.may_contain_hash(hash_with(self.hasher(), key.as_ref()))
            }

            /// Returns the heap memory of the filter, in bytes.
            #[must_use]
            pub fn memory_bytes(&self) -> usize {
                Filter::memory_bytes(self)
            }

            /// Returns the expected false-positive rate for the keys inserted so far, from 0 to 1.
            /// The structure's [`Filter`] implementation documents the cost.
            #[must_use]
            pub fn expected_fpr(&self) -> f64 {
                Filter::expected_fpr(self)
            }

            /// Returns the statistics. The structure's [`Filter`] implementation documents the
            /// cost.
            #[must_use]
            pub fn stats(&self) -> FilterStats {
                Filter::stats(self)
            }
        }
    )*};
}

/// For structures whose insertions never fail.
macro_rules! of_insert {
    ($($Structure:ident),* $(,)?) => {$(
        impl<S: BuildHasher> InsertFilter for $Structure<S> {
            /// Never fails.
            #[inline]
            fn try_insert_hash(&mut self, hash: u64) -> Result<bool, FilterFull> {
                Ok(self.insert_hash(hash))
            }

            fn clear(&mut self) {
                self.clear();
            }
        }
    )*};
}

macro_rules! of_saved {
    ($($Structure:ident),* $(,)?) => {$(
        impl $Structure {
            /// Reads a [saved form](crate::saved) that was written with the default hasher, of seed
            /// 0.
            ///
            /// # Errors
            ///
            /// As [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
                Saved::from_bytes(bytes)
            }

            /// Reads exactly what [`save`](Self::save) wrote with the default hasher, of seed 0.
            ///
            /// # Errors
            ///
            /// As [`load_with_hasher`](Self::load_with_hasher).
            #[cfg(feature = "std")]
            pub fn load(from: impl io::Read) -> Result<Self, LoadError> {
                Saved::load(from)
            }
        }

        impl<S: BuildHasher> $Structure<S> {
            /// Returns the [saved form](crate::saved): the payload plus 36 bytes.
            #[must_use]
            pub fn to_bytes(&self) -> Vec<u8> {
                Saved::to_bytes(self)
            }

            /// Reads a [saved form](crate::saved). `hasher` must hash like that of the saved
            /// filter.
            ///
            /// Allocates at most the memory of the saved filter, for any bytes.
            ///
            /// # Errors
            ///
            /// [`DecodeError`] if the bytes are damaged, of another kind or version, or were
            /// written with another hasher.
            pub fn from_bytes_with_hasher(bytes: &[u8], hasher: S) -> Result<Self, DecodeError> {
                Saved::from_bytes_with_hasher(bytes, hasher)
            }

            /// Writes the [saved form](crate::saved), in one call.
            ///
            /// # Errors
            ///
            /// Errors of the writer.
            #[cfg(feature = "std")]
            pub fn save(&self, to: impl io::Write) -> io::Result<()> {
                Saved::save(self, to)
            }

            /// Reads exactly what [`save`](Self::save) wrote, so that several filters can follow
            /// each other.
            ///
            /// # Errors
            ///
            /// [`LoadError`] if the reader fails, or as
            /// [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
            #[cfg(feature = "std")]
            pub fn load_with_hasher(from: impl io::Read, hasher: S) -> Result<Self, LoadError> {
                Saved::load_with_hasher(from, hasher)
            }
        }
    )*};
}

/// Not for [`CuckooFilter`], whose insertions may fail.
macro_rules! of_extend {
    ($($Structure:ident),* $(,)?) => {$(
        /// Inserts every key.
        impl<S: BuildHasher, K: AsRef<[u8]>> Extend<K> for $Structure<S> {
            fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
                for key in keys {
                    self.insert(key);
                }
            }
        }
    )*};
}

of_filter!(
    AtomicBloomFilter,
    BloomFilter,
    CountMinSketch,
    CountingBloom,
    CuckooFilter,
    PartitionedBloom,
    ScalableBloom,
    StripedBloomFilter,
);

of_insert!(AtomicBloomFilter, BloomFilter, CountingBloom, PartitionedBloom, ScalableBloom);

of_saved!(
    AtomicBloomFilter,
    BloomFilter,
    CountMinSketch,
    CountingBloom,
    CuckooFilter,
    PartitionedBloom,
    ScalableBloom,
);

of_extend!(
    AtomicBloomFilter,
    BloomFilter,
    CountMinSketch,
    CountingBloom,
    PartitionedBloom,
    ScalableBloom,
    StripedBloomFilter,
);
