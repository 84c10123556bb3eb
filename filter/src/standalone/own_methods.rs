//! What the traits offer, as methods of the structures: for users who import no trait. The
//! constructors without a hasher are those of the default one, so that its type need not be
//! written.

use core::hash::BuildHasher;

use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::io;

use super::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom, StripedBloomFilter,
};
use crate::decode_error::DecodeError;
use crate::filter::{Filter, FilterStats};
#[cfg(feature = "std")]
use crate::saved::LoadError;
use crate::saved::Saved;

macro_rules! of_filter {
    ($($Structure:ident),* $(,)?) => {$(
        impl<S: BuildHasher> $Structure<S> {
            /// Bytes that the filter keeps in memory, on the heap.
            #[must_use]
            pub fn memory_bytes(&self) -> usize {
                Filter::memory_bytes(self)
            }

            /// The expected false-positive rate now, from 0 to 1: of the keys that it holds, not of
            /// those that it was made for. For what it costs see the implementation of [`Filter`].
            #[must_use]
            pub fn expected_fpr(&self) -> f64 {
                Filter::expected_fpr(self)
            }

            /// What the filter holds. For what it costs see the implementation of [`Filter`].
            #[must_use]
            pub fn stats(&self) -> FilterStats {
                Filter::stats(self)
            }
        }
    )*};
}

macro_rules! of_saved {
    ($($Structure:ident),* $(,)?) => {$(
        impl $Structure {
            /// Reads a [saved form](crate::saved) that was made with the default hasher, of seed 0.
            ///
            /// # Errors
            ///
            /// As [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
                Saved::from_bytes(bytes)
            }

            /// Reads what [`save`](Self::save) wrote with the default hasher, of seed 0, and not a
            /// byte more.
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
            /// The [saved form](crate::saved): 36 bytes more than the structure's own.
            #[must_use]
            pub fn to_bytes(&self) -> Vec<u8> {
                Saved::to_bytes(self)
            }

            /// Reads a [saved form](crate::saved). `hasher` must hash as the one of the saved
            /// filter did.
            ///
            /// Takes no more memory than the filter had. Any bytes may be given.
            ///
            /// # Errors
            ///
            /// [`DecodeError`] if the bytes are damaged, of another kind or version, or were made
            /// with another hasher.
            pub fn from_bytes_with_hasher(bytes: &[u8], hasher: S) -> Result<Self, DecodeError> {
                Saved::from_bytes_with_hasher(bytes, hasher)
            }

            /// Writes the [saved form](crate::saved), in one call.
            ///
            /// # Errors
            ///
            /// Those of the writer.
            #[cfg(feature = "std")]
            pub fn save(&self, to: impl io::Write) -> io::Result<()> {
                Saved::save(self, to)
            }

            /// Reads what [`save`](Self::save) wrote, and not a byte more: several filters can
            /// follow each other.
            ///
            /// # Errors
            ///
            /// [`LoadError`] if reading fails, or if the bytes are refused as by
            /// [`from_bytes_with_hasher`](Self::from_bytes_with_hasher).
            #[cfg(feature = "std")]
            pub fn load_with_hasher(from: impl io::Read, hasher: S) -> Result<Self, LoadError> {
                Saved::load_with_hasher(from, hasher)
            }
        }
    )*};
}

/// Not for a [`CuckooFilter`], which may refuse a key.
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
