//! Serde support of standalone filters, as their [saved](crate::saved) bytes.

use alloc::vec::Vec;
use core::{fmt, hash::BuildHasher, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

use crate::saved::Saved;
use crate::standalone::{
    AtomicBloomFilter, BloomFilter, CountMinSketch, CountingBloom, CuckooFilter, PartitionedBloom,
    ScalableBloom,
};

/// Implements both traits for structures with the hasher as their only parameter.
macro_rules! serialize_as_saved {
    ($($Structure:ident),* $(,)?) => {$(
        /// Serializes the saved bytes.
        impl<S: BuildHasher> Serialize for $Structure<S> {
            fn serialize<Z: Serializer>(&self, to: Z) -> Result<Z::Ok, Z::Error> {
                to.serialize_bytes(&self.to_bytes())
            }
        }

        /// Deserializes the saved bytes. The hasher must equal the default one.
        impl<'de, S: BuildHasher + Default> Deserialize<'de> for $Structure<S> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_bytes(Bytes(PhantomData))
            }
        }
    )*};
}

serialize_as_saved!(
    AtomicBloomFilter,
    BloomFilter,
    CountMinSketch,
    CountingBloom,
    CuckooFilter,
    PartitionedBloom,
    ScalableBloom,
);

/// Accepts bytes in any form that a format has for them.
struct Bytes<F>(PhantomData<F>);

impl<'de, F: Saved> Visitor<'de> for Bytes<F>
where
    F::Hasher: Default,
{
    type Value = F;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a saved filter")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<F, E> {
        F::from_bytes(bytes).map_err(E::custom)
    }

    /// Formats without bytes, such as JSON, have a list of numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<F, A::Error> {
        // Grows with the bytes that arrive: the list's length hint is untrusted.
        let mut bytes = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}
