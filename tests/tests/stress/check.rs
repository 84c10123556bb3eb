//! States that readers may see.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use bytes::Bytes;

use super::history::{
    KEYS, THREADS, is_batch_end, is_mirrored, number_of, parse_key, state_after, stored_key, value,
};

/// Progress of each thread.
#[derive(Debug, Default)]
pub(super) struct Progress {
    begun: [AtomicU64; THREADS as usize],
    acknowledged: [AtomicU64; THREADS as usize],
}

impl Progress {
    pub(super) fn begin(&self, thread: u32, number: u64) {
        self.begun[thread as usize].store(number, SeqCst);
    }

    pub(super) fn acknowledge(&self, thread: u32, number: u64) {
        self.acknowledged[thread as usize].store(number, SeqCst);
    }

    /// Returns the writes that every later read sees.
    pub(super) fn acknowledged(&self, thread: u32) -> u64 {
        self.acknowledged[thread as usize].load(SeqCst)
    }

    /// Returns those of all threads.
    pub(super) fn all_acknowledged(&self) -> [u64; THREADS as usize] {
        std::array::from_fn(|thread| self.acknowledged(thread as u32))
    }

    /// Returns the writes that a finished read may have seen.
    pub(super) fn begun(&self, thread: u32) -> u64 {
        self.begun[thread as usize].load(SeqCst)
    }

    /// Returns the writes of all threads.
    pub(super) fn total(&self) -> u64 {
        self.all_acknowledged().iter().sum()
    }
}

/// Returns the possible newest writes for a reader: ends of batches from `least` to `most`.
fn possible(thread: u32, least: u64, most: u64) -> impl Iterator<Item = u64> {
    (least..=most).filter(move |&number| is_batch_end(thread, number))
}

/// Checks all bytes of a value. Returns the number of its write.
pub(super) fn check_value(thread: u32, key: u32, found: &[u8]) -> u64 {
    let number = number_of(found);
    assert!(*found == value(thread, key, number), "{thread}/{key}: not the value of {number}");
    number
}

/// Checks the result of a lookup between writes `least` and `most` of the key's owner.
pub(super) fn check_get(thread: u32, key: u32, found: Option<&[u8]>, least: u64, most: u64) {
    let found = found.map(|found| check_value(thread, key, found));
    let fits = |number| state_after(thread, key, number) == found;
    assert!(
        possible(thread, least, most).any(fits),
        "{thread}/{key} is that of write {found:?}; it was {:?} at {least} and {:?} at {most}",
        state_after(thread, key, least),
        state_after(thread, key, most),
    );
}

/// A consistent range: for each thread, the number of the write of each key's value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    keys: Range<u32>,
    numbers: Vec<Vec<Option<u64>>>,
}

impl Seen {
    /// Reads the values of `keys` of all threads, in either direction.
    pub(super) fn collect(
        keys: Range<u32>,
        entries: impl Iterator<Item = sievedb::Result<(Bytes, Bytes)>>,
        descending: bool,
    ) -> Self {
        let mut numbers = vec![vec![None; keys.len()]; THREADS as usize];
        let mut last: Option<Bytes> = None;
        for entry in entries {
            let (stored, value) = entry.unwrap();
            if let Some(last) = last.replace(stored.clone()) {
                assert!(if descending { stored < last } else { stored > last }, "out of order");
            }
            let (thread, key) = parse_key(&stored);
            assert!(keys.contains(&key), "{thread}/{key} is not in {keys:?}");
            let number = check_value(thread, key, &value);
            numbers[thread as usize][(key - keys.start) as usize] = Some(number);
        }
        Self { keys, numbers }
    }

    /// Returns the bounds of the range in stored keys.
    pub(super) fn bounds(keys: &Range<u32>) -> Range<[u8; 4]> {
        stored_key(0, keys.start)..stored_key(0, keys.end)
    }

    /// All keys.
    pub(super) const ALL: Range<u32> = 0..KEYS;

    /// Checks that this is a consistent state of each thread's keys, not before write `least` and
    /// not after the writes that `progress` has started.
    pub(super) fn check(&self, progress: &Progress, least: &[u64], mirrored: bool) {
        for (thread, numbers) in (0..).zip(&self.numbers) {
            let (least, most) = (least[thread as usize], progress.begun(thread));
            let fits = |number: u64| {
                self.keys.clone().zip(numbers).all(|(key, &seen)| {
                    let is_there = !mirrored || is_mirrored(key);
                    seen == state_after(thread, key, number).filter(|_| is_there)
                })
            };
            assert!(
                possible(thread, least, most).any(fits),
                "keys {:?} of {thread} are not what they were at any moment from write {least} to \
                 {most}: {numbers:?}",
                self.keys,
            );
        }
    }

    /// Checks that `mirror`, of the same point in time, has the expected keys.
    pub(super) fn check_mirror(&self, mirror: &Self) {
        for (thread, (numbers, mirrored)) in self.numbers.iter().zip(&mirror.numbers).enumerate() {
            for (key, (&seen, &mirrored)) in self.keys.clone().zip(numbers.iter().zip(mirrored)) {
                let want = seen.filter(|_| is_mirrored(key));
                assert_eq!(mirrored, want, "{thread}/{key}: half of a batch is seen");
            }
        }
    }
}
