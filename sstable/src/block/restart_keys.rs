//! The user keys of a block's restarts, packed for a search.
//!
//! A binary search over the stored keys misses the CPU's cache twice for each key it looks at. The
//! words here lie side by side, and mostly leave one key or none to be compared as a whole.

use std::ops::Range;

use super::common_prefix;

/// The common prefix is cut to this, so that it lies beside the rest.
const COMMON_BYTES_MAX: usize = 31;

/// The first bytes in which the user keys of restarts may differ.
#[derive(Debug)]
pub(super) struct RestartKeys {
    /// What all of them begin with.
    common: [u8; COMMON_BYTES_MAX],
    common_bytes: u8,
    /// Of each, the 8 bytes behind that as a big-endian number: these order as the keys do, but
    /// keys that differ later, or in zeros at the end only, have equal words.
    words: Box<[u64]>,
}

impl RestartKeys {
    /// Packs sorted user keys.
    pub(super) fn new<'a>(user_keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> Self {
        let mut packed = Self { common: [0; _], common_bytes: 0, words: Box::default() };
        let mut ends = user_keys.clone();
        if let Some(first) = ends.next() {
            // What the first and the last share, those between share too.
            let last = ends.next_back().unwrap_or(first);
            let common_bytes = common_prefix(first, last).min(COMMON_BYTES_MAX);
            packed.common[..common_bytes].copy_from_slice(&first[..common_bytes]);
            packed.common_bytes = common_bytes as u8; // At most 31.
            packed.words = user_keys.map(|user_key| word(&user_key[common_bytes..])).collect();
        }
        packed
    }

    /// The restarts that have to be compared with `user_key`: those before the range are before it,
    /// those behind the range are behind it.
    #[inline]
    pub(super) fn narrow(&self, user_key: &[u8]) -> Range<usize> {
        let common = &self.common[..usize::from(self.common_bytes)];
        let shared = common_prefix(common, user_key);
        if shared < common.len() {
            let is_behind = user_key.get(shared).is_some_and(|byte| *byte > common[shared]);
            let all = if is_behind { self.words.len() } else { 0 };
            return all..all;
        }
        let word = word(&user_key[shared..]);
        let start = self.words.partition_point(|other| *other < word);
        let equal = self.words[start..].partition_point(|other| *other == word);
        start..start + equal
    }

    /// Where the words lie.
    pub(super) fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }

    /// Bytes of memory behind the pointer.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// The first 8 bytes as a number that orders as they do; zeros where the key is shorter.
#[inline]
fn word(rest: &[u8]) -> u64 {
    if let Some(bytes) = rest.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; size_of::<u64>()];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_leaves_out_only_what_is_decided() {
        let long = [b'p'; 40];
        let keys_of = |prefix: &[u8]| -> Vec<Vec<u8>> {
            let rests: [&[u8]; 9] = [
                b"",
                b"\0",
                b"\0\0",
                b"a",
                b"abcdefgh",
                b"abcdefgh\0",
                b"abcdefghi",
                b"b",
                b"\xff",
            ];
            rests.map(|rest| [prefix, rest].concat()).to_vec()
        };
        for prefix in [&b""[..], b"p", &long[..30], &long[..31], &long[..32], &long] {
            let keys = keys_of(prefix);
            for some in (1..keys.len()).flat_map(|length| keys.windows(length)) {
                let packed = RestartKeys::new(some.iter().map(Vec::as_slice));
                for target in keys.iter().cloned().chain(keys_of(b"")).chain(keys_of(b"q")) {
                    let Range { start, end } = packed.narrow(&target);
                    assert!(start <= end && end <= some.len());
                    assert!(some[..start].iter().all(|key| *key < target), "{some:?} {target:?}");
                    assert!(some[end..].iter().all(|key| *key > target), "{some:?} {target:?}");
                }
            }
        }
    }

    #[test]
    fn keys_that_differ_early_need_no_comparison() {
        let keys: Vec<_> = (0..100).map(|n| format!("user{n:08}").into_bytes()).collect();
        let packed = RestartKeys::new(keys.iter().map(Vec::as_slice));
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(packed.narrow(key), index..index + 1);
        }
        assert_eq!(packed.narrow(b"user00000042x"), 43..43);
        assert_eq!(packed.narrow(b"user00000042\0"), 42..43, "equal but for a zero");
        assert_eq!(packed.narrow(b"user0000004"), 40..40);
    }

    #[test]
    fn no_restarts_are_narrowed_to_none() {
        let packed = RestartKeys::new(std::iter::empty());
        assert_eq!(packed.narrow(b"k"), 0..0);
    }
}
