//! Binary search over the first bytes of keys, packed side by side.

/// The first eight bytes after the common prefix of sorted keys.
///
/// A search compares integers in contiguous memory. It compares whole keys, each in its own
/// allocation, only where the integers are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedKeys {
    common_prefix: Box<[u8]>,
    heads: Box<[u64]>,
}

impl PackedKeys {
    /// Returns the heap memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.common_prefix.len() + size_of_val(&*self.heads)
    }

    /// Packs `keys`, which must be sorted in ascending order.
    #[must_use]
    pub fn new<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let mut ends = keys.clone();
        let common_prefix = match (ends.next(), ends.last()) {
            (Some(first), Some(last)) => {
                let equal = first.iter().zip(last).take_while(|(a, b)| a == b).count();
                &first[..equal]
            }
            _ => &[],
        };
        let heads = keys.map(|key| head(&key[common_prefix.len()..])).collect();
        Self { common_prefix: common_prefix.into(), heads }
    }

    /// Returns the index of the first key at or above `key`, or the number of keys if there is
    /// none. `whole` returns the key at an index.
    #[inline]
    #[must_use]
    pub fn first_at_or_above<'a>(&self, key: &[u8], whole: impl Fn(usize) -> &'a [u8]) -> usize {
        // Skips even an empty comparison. An empty box points to no memory, and a masked load from
        // such an address, as in the C library's `memcmp`, costs some CPUs 80 ns.
        let target = if self.common_prefix.is_empty() {
            head(key)
        } else {
            match self.head_behind_prefix(key) {
                Ok(target) => target,
                Err(outside) => return outside,
            }
        };
        let start = self.heads.partition_point(|&head| head < target);
        // Most searched keys differ from all keys in their heads.
        if self.heads.get(start) != Some(&target) {
            return start;
        }
        self.among_equal(start, |at| whole(at) < key)
    }

    /// Returns the index of the last key at or below `key`; `None` if there is none. `whole`
    /// returns the key at an index.
    #[inline]
    #[must_use]
    pub fn last_at_or_below<'a>(
        &self,
        key: &[u8],
        whole: impl Fn(usize) -> &'a [u8],
    ) -> Option<usize> {
        // As in `first_at_or_above`.
        let target = if self.common_prefix.is_empty() {
            head(key)
        } else {
            match self.head_behind_prefix(key) {
                Ok(target) => target,
                Err(outside) => return outside.checked_sub(1),
            }
        };
        let start = self.heads.partition_point(|&head| head < target);
        if self.heads.get(start) != Some(&target) {
            return start.checked_sub(1);
        }
        self.among_equal(start, |at| whole(at) <= key).checked_sub(1)
    }

    /// Returns the head of `key` after the common prefix. Without that prefix, returns the index of
    /// the first key above `key` as an error.
    ///
    /// Not inlined, because the calls would make every search save registers.
    #[inline(never)]
    fn head_behind_prefix(&self, key: &[u8]) -> Result<u64, usize> {
        match key.strip_prefix(&*self.common_prefix) {
            Some(tail) => Ok(head(tail)),
            None => Err(if *key < *self.common_prefix { 0 } else { self.heads.len() }),
        }
    }

    /// Searches the keys with the same head as the key at `start`. Returns the index of the first
    /// key that is not `before`, or the index after these keys if there is none.
    #[inline(never)]
    fn among_equal(&self, start: usize, before: impl Fn(usize) -> bool) -> usize {
        let target = self.heads[start];
        let equal = self.heads[start..].partition_point(|&head| head == target);
        let (mut low, mut high) = (start, start + equal);
        while low < high {
            let middle = low.midpoint(high);
            if before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Returns the first eight bytes as a big-endian number, so that numbers order as the bytes do.
///
/// Missing bytes count as zero, so keys with equal heads must be compared as a whole.
#[inline]
#[must_use]
pub fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => short_head(bytes),
    }
}

#[inline(never)]
fn short_head(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = bytes.len().min(head.len());
    head[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(head)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn search_agrees_with_comparing_whole_keys(
            keys in btree_set("[ab]{0,12}", 0..20),
            prefix in "[ab]{0,3}",
            probe in "[ab]{0,14}",
        ) {
            let keys: Vec<_> = keys.iter().map(|key| prefix.clone() + key).collect();
            let packed = PackedKeys::new(keys.iter().map(String::as_bytes));
            for key in keys.iter().chain([&probe]) {
                let want = keys.partition_point(|k| k < key);
                let found = packed.first_at_or_above(key.as_bytes(), |at| keys[at].as_bytes());
                prop_assert_eq!(found, want);
                let want = keys.partition_point(|k| k <= key).checked_sub(1);
                let found = packed.last_at_or_below(key.as_bytes(), |at| keys[at].as_bytes());
                prop_assert_eq!(found, want);
            }
        }
    }
}
