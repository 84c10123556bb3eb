//! Bounds of a range of keys.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use sievedb_format::{KEY_BYTES_MAX, range_tombstone::ends_above};

/// The two ends of a range of user keys, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyBounds {
    pub(crate) start: Bound<Bytes>,
    pub(crate) end: Bound<Bytes>,
}

impl KeyBounds {
    /// Every key.
    pub(crate) const ALL: Self = Self { start: Bound::Unbounded, end: Bound::Unbounded };

    /// Copies the bounds of `range`.
    pub(crate) fn new<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Self {
        Self::copy(range.start_bound().map(K::as_ref), range.end_bound().map(K::as_ref))
    }

    pub(crate) fn copy(start: Bound<&[u8]>, end: Bound<&[u8]>) -> Self {
        let copy = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        Self { start: copy(start), end: copy(end) }
    }

    /// Returns the bounds of the keys with this prefix.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let end = behind_prefix(prefix);
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()));
        Self { start: Bound::Included(Bytes::copy_from_slice(prefix)), end }
    }

    /// Returns a common prefix of all keys within the bounds, as long as the bounds determine.
    /// Meaningless if they are [empty](Self::is_empty).
    pub(crate) fn common_prefix(&self) -> &[u8] {
        let (Bound::Included(start) | Bound::Excluded(start)) = &self.start else { return &[] };
        let shared = |end: &[u8]| start.iter().zip(end).take_while(|(a, b)| a == b).count();
        let from = match &self.end {
            Bound::Unbounded => 0,
            Bound::Included(end) => return &start[..shared(end)],
            Bound::Excluded(end) => {
                let shared = shared(end);
                // The end is the first key after a prefix of one more byte, which all keys have.
                let is_next =
                    |byte: u8| byte.checked_add(1).is_some_and(|next| end[shared..] == [next]);
                match start.get(shared) {
                    Some(&byte) if is_next(byte) => shared + 1,
                    _ => return &start[..shared],
                }
            }
        };
        // Keys at or above 0xff begin with it.
        let highest = start[from..].iter().take_while(|&&byte| byte == u8::MAX).count();
        &start[..from + highest]
    }

    /// Returns `true` if no key is within the bounds, as with inverted ones.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, Bound::Excluded(end)) => end.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
        }
    }
    /// Returns the key of one of the bounds, if one has any.
    pub(crate) fn any_key(&self) -> Option<&Bytes> {
        match (&self.start, &self.end) {
            (Bound::Included(key) | Bound::Excluded(key), _)
            | (_, Bound::Included(key) | Bound::Excluded(key)) => Some(key),
            (Bound::Unbounded, Bound::Unbounded) => None,
        }
    }

    /// Returns the keys of the two ends.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        [&self.start, &self.end].into_iter().filter_map(|bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        })
    }

    /// Returns the length of both keys, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys().map(Bytes::len).sum()
    }

    /// Returns the first key within the bounds and the first key after them, which is empty without
    /// an upper bound. Returns `None` if no key is within the bounds. No key is longer than
    /// [`KEY_BYTES_MAX`].
    pub(crate) fn as_range_tombstone(&self) -> Option<(Bytes, Bytes)> {
        let start = match &self.start {
            Bound::Included(start) => start.clone(),
            Bound::Excluded(start) => behind_key(start)?.into(),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match &self.end {
            Bound::Included(end) => behind_key(end).map_or_else(Bytes::new, Bytes::from),
            Bound::Excluded(end) if end.is_empty() => return None,
            Bound::Excluded(end) => end.clone(),
            Bound::Unbounded => Bytes::new(),
        };
        ends_above(&end, &start).then_some((start, end))
    }

    /// Borrows the two ends.
    pub(crate) fn as_slices(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(AsRef::as_ref), self.end.as_ref().map(AsRef::as_ref))
    }
}

/// Returns the first key after all keys with this prefix: the prefix without its last 0xff bytes,
/// and the last byte incremented. Returns `None` for a prefix of 0xff bytes.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Returns the first key after `key`; `None` if `key` is the largest key.
fn behind_key(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        return Some([key, &[0]].concat());
    }
    // A longer key is not valid, so `key` is the only key with itself as a prefix.
    behind_prefix(key)
}

/// Returns `true` if `key` satisfies the lower bound `start`.
pub(crate) fn is_above(key: &[u8], start: Bound<&[u8]>) -> bool {
    match start {
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
        Bound::Unbounded => true,
    }
}

/// Returns `true` if `key` satisfies the upper bound `end`.
pub(crate) fn is_below(key: &[u8], end: Bound<&[u8]>) -> bool {
    match end {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    }
}
