//! Fixed arrays as keys.

use super::{EncodeAs, Key, KeyError, Place};

/// Returns the place of the element at index `at` of `count` elements, in a key at `place`.
fn element_place(at: usize, count: usize, place: Place) -> Place {
    if at + 1 == count { place } else { Place::Inner }
}

impl<K, Q: EncodeAs<K>, const N: usize> EncodeAs<[K; N]> for [Q; N] {
    fn encode(&self, out: &mut Vec<u8>, place: Place) {
        for (at, element) in self.iter().enumerate() {
            element.encode(out, element_place(at, N, place));
        }
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn decode(input: &mut &[u8], place: Place) -> Result<Self, KeyError> {
        let mut elements = Vec::with_capacity(N);
        for at in 0..N {
            elements.push(K::decode(input, element_place(at, N, place))?);
        }
        Ok(Self::try_from(elements).unwrap_or_else(|_| unreachable!("it has N elements")))
    }
}
