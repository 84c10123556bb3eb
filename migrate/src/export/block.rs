//! Blocks of sorted entries with shared prefixes.

/// Builds a block.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// Number of entries from one restart point to the next.
    interval: usize,
    /// Number of entries since the last restart point, which counts as one.
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> Self {
        let last_key = Vec::new();
        Self { bytes: Vec::new(), restarts: vec![0], interval, since_restart: 0, last_key }
    }

    /// Appends an entry. Its key must be greater than the last one.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.since_restart < self.interval {
            self.last_key.iter().zip(key).take_while(|(left, right)| left == right).count()
        } else {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
            0
        };
        put_varint64(&mut self.bytes, shared as u64);
        put_varint64(&mut self.bytes, (key.len() - shared) as u64);
        put_varint64(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.since_restart += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the length of the finished block.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Returns the block, and starts the next one.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let next = Self::new(self.interval);
        let Self { mut bytes, restarts, .. } = std::mem::replace(self, next);
        for restart in &restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        bytes.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
        bytes
    }
}

/// Appends an integer as a LEB128 varint: 7 bits per byte, the lowest bits first.
pub(super) fn put_varint64(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Returns a short key for the index that is at least `last` and less than `next`, the first key of
/// the next block.
pub(super) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = last.iter().zip(next).take_while(|(left, right)| left == right).count();
    if let (Some(&byte), Some(&end)) = (last.get(shared), next.get(shared)) {
        let incremented = byte + 1;
        if incremented < end || next.len() > shared + 1 {
            let mut key = last[..=shared].to_vec();
            key[shared] = incremented;
            return key;
        }
    }
    last.to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn separators_are_short() {
        let cases: [(&str, &str, &str); 5] = [
            ("abcdef", "abzz", "abd"),
            ("abc", "abd", "abc"),
            ("abc", "abdx", "abd"),
            ("ab", "abc", "ab"),
            ("", "a", ""),
        ];
        for (last, next, want) in cases {
            assert_eq!(separator(last.as_bytes(), next.as_bytes()), want.as_bytes());
        }
        assert_eq!(separator(b"a\xfe\x01", b"a\xff"), b"a\xfe\x01");
    }

    proptest! {
        #[test]
        fn separators_are_between_the_blocks(
            left in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(254), Just(255)], 0..5),
            right in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(254), Just(255)], 0..5),
        ) {
            let (last, next) = if left < right { (left, right) } else { (right, left) };
            prop_assume!(last != next);
            let key = separator(&last, &next);
            prop_assert!(last <= key && key < next && key.len() <= last.len(), "{key:?}");
        }
    }
}
