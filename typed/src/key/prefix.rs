//! Prefixes of keys: leading elements of tuples, and starts of strings.

use std::ops::{Bound, RangeBounds};

use super::{EncodeAs, Place, to_bytes};

/// A prefix of keys of type `K`.
///
/// Tuples of leading elements are prefixes of tuples: `(7,)` and `(7, "a")` of
/// `(u64, String, u32)`. A prefix of one element needs the comma. Strings are prefixes of keys that
/// consist of one string.
pub trait PrefixOf<K> {
    /// Appends the common first bytes of all keys with this prefix.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

impl<K, Q: PrefixOf<K> + ?Sized> PrefixOf<K> for &Q {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        (**self).encode_prefix(out);
    }
}

/// Implements prefixes of keys that consist of one string.
macro_rules! strings {
    ($($borrowed:ty as $owned:ty),+ $(,)?) => {$(
        impl PrefixOf<$owned> for $borrowed {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_ref());
            }
        }
    )+};
}

strings!(String as String, str as String, Vec<u8> as Vec<u8>, [u8] as Vec<u8>);

/// Implements prefixes of tuples: the elements of the prefix, then the other ones.
macro_rules! tuples {
    ($(($($key:ident $query:ident $at:tt),+ / $($rest:ident)+))+) => {$(
        impl<$($key, $query: EncodeAs<$key>,)+ $($rest),+> PrefixOf<($($key,)+ $($rest,)+)>
            for ($($query,)+)
        {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                $(self.$at.encode(out, Place::Inner);)+
            }
        }
    )+};
}

tuples! {
    (A Q 0 / B)
    (A Q 0 / B C)
    (A Q 0 / B C D)
    (A Q 0 / B C D E)
    (A Q 0 / B C D E F)
    (A Q 0, B R 1 / C)
    (A Q 0, B R 1 / C D)
    (A Q 0, B R 1 / C D E)
    (A Q 0, B R 1 / C D E F)
    (A Q 0, B R 1, C S 2 / D)
    (A Q 0, B R 1, C S 2 / D E)
    (A Q 0, B R 1, C S 2 / D E F)
    (A Q 0, B R 1, C S 2, D T 3 / E)
    (A Q 0, B R 1, C S 2, D T 3 / E F)
    (A Q 0, B R 1, C S 2, D T 3, E U 4 / F)
}

/// Bounds of encoded keys.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Encodes `bounds` of keys.
pub(crate) fn key_bounds<K, Q: EncodeAs<K>>(bounds: &impl RangeBounds<Q>) -> KeyBounds {
    (bounds.start_bound().map(to_bytes), bounds.end_bound().map(to_bytes))
}

/// Encodes bounds of all keys with a prefix within `bounds`.
pub(crate) fn prefix_bounds<K, P: PrefixOf<K>>(bounds: &impl RangeBounds<P>) -> KeyBounds {
    let bytes = |prefix: &P| {
        let mut bytes = Vec::new();
        prefix.encode_prefix(&mut bytes);
        bytes
    };
    let start = match bounds.start_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(prefix) => Bound::Included(bytes(prefix)),
        Bound::Excluded(prefix) => match after_prefix(bytes(prefix)) {
            Some(after) => Bound::Included(after),
            None => return (Bound::Included(Vec::new()), Bound::Excluded(Vec::new())),
        },
    };
    let end = match bounds.end_bound() {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(prefix) => {
            after_prefix(bytes(prefix)).map_or(Bound::Unbounded, Bound::Excluded)
        }
        Bound::Excluded(prefix) => Bound::Excluded(bytes(prefix)),
    };
    (start, end)
}

/// Returns the least bytes after all those with `prefix`, if any exist.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}
