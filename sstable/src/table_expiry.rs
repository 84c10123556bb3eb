//! Expiry of the entries of a table, and its collection.
//!
//! # Encoded form
//!
//! Varints: `entries`, `bytes`, the first mark, and the difference of each mark from the previous
//! one. There are [`MARKS`] marks. Table properties and the manifest use this form.

use sievedb_format::{Corruption, Decoder, Encode, expiry::EXPIRY_BYTES};

/// Number of marks: the ends and the seven octiles between them.
pub const MARKS: usize = 9;

/// Maximum number of samples for the marks.
const SAMPLES_MAX: usize = 512;

/// The entries of a table that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableExpiry {
    /// Number of entries that expire, at least 1.
    pub entries: u64,
    /// Total length of the keys and values of these entries, in bytes.
    pub bytes: u64,
    /// Ascending, in milliseconds of the store clock. The first and the last are exact; between two
    /// of them about 1/8 of the entries expire.
    marks_ms: [u64; MARKS],
}

impl TableExpiry {
    /// Returns the earliest expiry, in milliseconds of the store clock.
    #[must_use]
    pub fn oldest_ms(&self) -> u64 {
        self.marks_ms[0]
    }

    /// Returns the latest expiry, in milliseconds of the store clock.
    #[must_use]
    pub fn newest_ms(&self) -> u64 {
        self.marks_ms[MARKS - 1]
    }

    /// Estimates the number of entries that have expired at `clock_ms`. 0 if none has, and
    /// [`entries`](Self::entries) if all have.
    #[must_use]
    pub fn expired_entries(&self, clock_ms: u64) -> u64 {
        let passed = self.marks_ms.partition_point(|&mark| mark <= clock_ms);
        let Some(&next) = self.marks_ms.get(passed) else { return self.entries };
        let Some(before) = passed.checked_sub(1) else { return 0 };
        let from = self.marks_ms[before];
        let part = (clock_ms - from) as f64 / (next - from) as f64;
        (self.entries as f64 * (before as f64 + part) / (MARKS - 1) as f64) as u64
    }

    /// Estimates the first time at which [`expired_entries`](Self::expired_entries) is at least
    /// `entries`. `None` if fewer entries expire.
    #[must_use]
    pub fn time_of(&self, entries: u64) -> Option<u64> {
        if entries > self.entries {
            return None;
        }
        let (mut low, mut high) = (self.oldest_ms(), self.newest_ms());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.expired_entries(middle) >= entries {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }

    /// Appends the encoded form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.entries);
        out.put_varint(self.bytes);
        let mut before = 0;
        for mark in self.marks_ms {
            out.put_varint(mark - before);
            before = mark;
        }
    }

    /// Decodes the encoded form.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if the bytes are short, there are no entries, or a mark exceeds 64 bits.
    pub fn decode(what: &'static str, decoder: &mut Decoder<'_>) -> Result<Self, Corruption> {
        let (entries, bytes) = (decoder.varint(what)?, decoder.varint(what)?);
        if entries == 0 {
            return Err(Corruption::OutOfRange { what, value: 0 });
        }
        let (mut marks_ms, mut before) = ([0; MARKS], 0_u64);
        for mark in &mut marks_ms {
            let difference = decoder.varint(what)?;
            let sum = before.checked_add(difference);
            *mark = sum.ok_or(Corruption::OutOfRange { what, value: difference })?;
            before = *mark;
        }
        Ok(Self { entries, bytes, marks_ms })
    }
}

/// A collector of the expiry of a table's entries.
///
/// Keeps a uniform sample in 4 KiB. Source: Vitter, "Random Sampling with a Reservoir", ACM
/// Transactions on Mathematical Software 11(1), 1985, algorithm R.
#[derive(Debug)]
pub(crate) struct ExpiryCollector {
    entries: u64,
    bytes: u64,
    oldest_ms: u64,
    newest_ms: u64,
    samples: Vec<u64>,
}

impl Default for ExpiryCollector {
    fn default() -> Self {
        Self { entries: 0, bytes: 0, oldest_ms: u64::MAX, newest_ms: 0, samples: Vec::new() }
    }
}

impl ExpiryCollector {
    /// Adds an entry with a value of `value_bytes` after its expiry.
    pub(crate) fn add(&mut self, expiry_ms: u64, key_bytes: usize, value_bytes: usize) {
        self.entries += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(expiry_ms);
        } else if let Some(sample) =
            self.samples.get_mut((mix(self.entries) % self.entries) as usize)
        {
            *sample = expiry_ms;
        }
        self.bytes += (key_bytes + EXPIRY_BYTES + value_bytes) as u64;
        self.oldest_ms = self.oldest_ms.min(expiry_ms);
        self.newest_ms = self.newest_ms.max(expiry_ms);
        debug_assert!(self.samples.len() <= SAMPLES_MAX);
        debug_assert!(self.oldest_ms <= self.newest_ms && !self.samples.is_empty());
    }

    /// Returns the memory of the samples, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.samples.capacity() * size_of::<u64>()
    }

    /// Returns the result; `None` if no entry expires.
    pub(crate) fn finish(mut self) -> Option<TableExpiry> {
        let Self { entries, bytes, oldest_ms, newest_ms, .. } = self;
        let last = self.samples.len().checked_sub(1)?;
        self.samples.sort_unstable();
        let mut marks_ms = [oldest_ms; MARKS];
        for (index, mark) in marks_ms.iter_mut().enumerate() {
            *mark = self.samples[last * index / (MARKS - 1)];
        }
        (marks_ms[0], marks_ms[MARKS - 1]) = (oldest_ms, newest_ms);
        debug_assert!(marks_ms.is_sorted(), "{marks_ms:?}");
        Some(TableExpiry { entries, bytes, marks_ms })
    }
}

/// Returns the n-th number of a fixed pseudorandom sequence (SplitMix64).
fn mix(n: u64) -> u64 {
    let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(expiries: impl IntoIterator<Item = u64>) -> TableExpiry {
        let mut collector = ExpiryCollector::default();
        expiries.into_iter().for_each(|expiry_ms| collector.add(expiry_ms, 2, 0));
        collector.finish().expect("an entry expires")
    }

    #[test]
    fn expired_entries_follow_the_clock() {
        assert_eq!(ExpiryCollector::default().finish(), None);
        // Half expires early, half ten years later.
        let early = |number: u64| if number.is_multiple_of(2) { 1000 + number } else { 1 << 38 };
        let expiry = collected((0..10_000).map(early));
        assert_eq!((expiry.entries, expiry.bytes), (10_000, 100_000));
        assert_eq!((expiry.oldest_ms(), expiry.newest_ms()), (1000, 1 << 38));
        let expired = |clock_ms| expiry.expired_entries(clock_ms);
        assert_eq!((expired(0), expired(999), expired(1 << 38)), (0, 0, 10_000));
        for clock_ms in [3_000, 6_000, 9_000, 20_000] {
            let want = ((clock_ms - 1000) / 2).min(5_000);
            let found = expired(clock_ms);
            assert!(found.abs_diff(want) < 1_300, "{found} at {clock_ms}, not {want}");
        }
        for entries in [0, 1, 2_000, 4_000, 9_999, 10_000] {
            let time = expiry.time_of(entries).expect("so many expire");
            assert!(expired(time) >= entries, "{entries} at {time}");
            assert!(time == 1000 || expired(time - 1) < entries, "{entries} before {time}");
        }
        assert_eq!(expiry.time_of(10_001), None);
        assert_eq!(collected([7]).time_of(1), Some(7));
        assert!(collected([u64::MAX, 0]).expired_entries(u64::MAX - 1) <= 2);
    }

    #[test]
    fn formats_the_expiry_of_a_table_round_trips() {
        let cases = [
            ("one", vec![7]),
            ("extreme", vec![0, u64::MAX]),
            ("many", (0..2_000).map(|number| number * number).collect()),
        ];
        for (name, expiries) in cases {
            let expiry = collected(expiries);
            let mut bytes = Vec::new();
            expiry.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(TableExpiry::decode("expiry", &mut decoder), Ok(expiry), "{name}");
            assert!(decoder.is_empty(), "{name}");
            for cut in 0..bytes.len() {
                let mut decoder = Decoder::new(&bytes[..cut]);
                assert!(TableExpiry::decode("expiry", &mut decoder).is_err(), "{name} at {cut}");
            }
        }
        let mut none = Decoder::new(&[0; 11]);
        let want = Corruption::OutOfRange { what: "expiry", value: 0 };
        assert_eq!(TableExpiry::decode("expiry", &mut none), Err(want));
    }
}
