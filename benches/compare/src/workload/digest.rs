//! Digest of a scan, to verify its entries and their order.

use crate::{
    contestant::{Engine, Order},
    failure::Result,
    keys::Entry,
};

/// Number and order-independent sum of entries. Adding an entry costs little more than reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) entries: u64,
    sum: u64,
}

impl Digest {
    /// Adds an entry: its key, and the first word of its value, which is noise.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        let words = word(key, 0) ^ word(key, size_of::<u64>()).rotate_left(32);
        self.sum = self.sum.wrapping_add(words).wrapping_add(word(value, 0) ^ value.len() as u64);
    }

    /// Returns the digest of `entries`.
    pub(crate) fn of(entries: impl Iterator<Item = Entry>) -> Self {
        let mut digest = Self::default();
        entries.for_each(|(key, value)| digest.add(&key, &value));
        digest
    }

    /// Fails unless this is `want`.
    pub(crate) fn check(self, want: Self) -> Result<()> {
        if self == want {
            return Ok(());
        }
        let (entries, want_entries) = (self.entries, want.entries);
        Err(format!("a scan finds {entries} entries, not the {want_entries} that are there").into())
    }
}

/// Returns the eight bytes from `at` on; 0 if there are fewer.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Fails unless `engine` holds exactly `want`, in this order.
pub(crate) fn check<E: Engine>(engine: &E, order: Order, want: Digest) -> Result<()> {
    let mut digest = Digest::default();
    let mut last: Option<Vec<u8>> = None;
    let mut in_order = true;
    engine.scan(order, |key, value| {
        match &mut last {
            Some(last) => {
                in_order &= match order {
                    Order::Ascending => last.as_slice() < key,
                    Order::Descending => last.as_slice() > key,
                };
                last.clear();
                last.extend_from_slice(key);
            }
            none => *none = Some(key.to_owned()),
        }
        digest.add(key, value);
    })?;
    if in_order { digest.check(want) } else { Err("a scan is out of order".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;

    #[test]
    fn digest_distinguishes_entries() {
        let keys = Keys::new(1);
        let entries = |from: u64, to: u64| (from..to).map(|index| keys.entry(index));
        let all = Digest::of(entries(0, 100));
        assert_eq!(Digest::of(entries(50, 100).chain(entries(0, 50))), all);
        assert!(Digest::of(entries(0, 99)).check(all).is_err());
        assert!(Digest::of(entries(1, 101)).check(all).is_err());
        let (key, value) = keys.entry(7);
        let other = keys.value_of_version(&key, 1);
        assert_ne!(Digest::of([(key, value)].into_iter()), Digest::of([(key, other)].into_iter()));
        let mut short = Digest::default();
        short.add(b"a", b"");
        assert_eq!(short.entries, 1);
    }
}
