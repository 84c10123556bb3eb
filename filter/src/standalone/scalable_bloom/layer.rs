//! One filter in the chain of a scalable one: blocked, with its own capacity and rate.

use alloc::boxed::Box;

use crate::decode_error::DecodeError;
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::line::{LINE_BITS, LINE_BYTES, Line, PROBES_MAX, Path, line_of, prefetch};
use crate::memory;
use crate::params::{blocked_bloom_fpr_of, blocked_bloom_probes};
use crate::saved::{Reader, Writer};

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// Never empty.
    lines: Box<[Line]>,
    probes: u8,
    /// Keys that were definitely absent when they were inserted.
    pub(super) keys: u64,
    /// Maximum of `keys`, at least 1.
    pub(super) capacity: u64,
}

impl Layer {
    /// Creates an empty layer with rate `fpr` at `capacity` keys.
    ///
    /// # Panics
    ///
    /// If the layer exceeds the memory.
    pub(super) fn new(capacity: u64, fpr: f64) -> Self {
        let (lines, probes) = shape_for(capacity, fpr);
        // Sized for all distinct keys offered: false positives do not count as keys.
        let share = false_positives(capacity, lines, probes) / capacity as f64;
        let (lines, probes) = shape_for((capacity as f64 / (1.0 - share)).ceil() as u64, fpr);
        let lines = usize::try_from(lines).expect("the filter exceeds the address space");
        Self { lines: memory::filled(Line::EMPTY, lines).into(), probes, keys: 0, capacity }
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.capacity
    }

    /// Inserts a key that is absent.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, path: Path) {
        path.insert_all(&mut self.lines, self.probes, &[hash]);
        self.keys += 1;
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64, path: Path) -> bool {
        path.contains(&self.lines, hash, self.probes)
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(line_of(&self.lines, hash));
    }

    pub(super) fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
        self.keys = 0;
    }

    pub(super) fn probes(&self) -> u8 {
        self.probes
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Counts the set bits. Reads all.
    pub(super) fn bits_set(&self) -> u64 {
        let ones = |line: &Line| line.to_bytes().iter().map(|byte| byte.count_ones()).sum::<u32>();
        self.lines.iter().map(|line| u64::from(ones(line))).sum()
    }

    /// Estimates the distinct keys offered, false positives included, from the set bits. Infinite
    /// if all are set.
    ///
    /// A line holds a Poisson-distributed number of keys. A bit stays unset by one key with
    /// probability `q = (1 - 1 / 512)^probes`, and by all with `e^(-keys / lines (1 - q))`.
    pub(super) fn keys_estimated(&self, bits_set: u64) -> f64 {
        let lines = self.lines.len() as f64;
        let fill = bits_set as f64 / (lines * f64::from(LINE_BITS));
        let unset = (1.0 - 1.0 / f64::from(LINE_BITS)).powi(self.probes.into());
        -lines * (-fill).ln_1p() / (1.0 - unset)
    }

    /// Returns the expected false-positive rate with `bits_set` bits set.
    pub(super) fn expected_fpr(&self, bits_set: u64) -> f64 {
        // The cast saturates.
        let keys = self.keys_estimated(bits_set).round() as u64;
        blocked_bloom_fpr_of(keys, self.lines.len() as u64, self.probes)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u64(self.lines.len() as u64);
        writer.u64(self.probes.into());
        writer.u64(self.keys);
        self.lines.iter().for_each(|line| writer.bytes(&line.to_bytes()));
    }

    pub(super) fn read(reader: &mut Reader<'_>, capacity: u64) -> Result<Self, DecodeError> {
        let lines = reader.u64_in("layer lines", capacity.div_ceil(LINE_BITS.into())..=u64::MAX)?;
        let probes = reader.u64_in("layer probes", 1..=PROBES_MAX.into())? as u8; // At most 16.
        let keys = reader.u64_in("layer keys", 0..=capacity)?;
        let bytes = reader.bytes("layer lines", lines.saturating_mul(LINE_BYTES as u64))?;
        let (lines, _) = bytes.as_chunks();
        let lines = lines.iter().map(Line::from_bytes).collect();
        Ok(Self { lines, probes, keys, capacity })
    }
}

/// Returns how many of `keys` distinct keys, offered one after the other, are false positives: the
/// integral of the rate, by Simpson's rule. A filter of `n` counted keys has as many bits set as
/// one of all offered keys.
fn false_positives(keys: u64, lines: u64, probes: u8) -> f64 {
    const STEPS: u64 = 16;

    let sum = (0..=STEPS).map(|i| {
        let weight = if i == 0 || i == STEPS { 1.0 } else { f64::from(2 + 2 * (i % 2) as u8) };
        // Below `keys`; rounding does not matter.
        let some = (keys as f64 * i as f64 / STEPS as f64).round() as u64;
        weight * blocked_bloom_fpr_of(some, lines, probes)
    });
    sum.sum::<f64>() * keys as f64 / (3 * STEPS) as f64
}

/// Returns the smallest number of lines with which `capacity` keys have at most rate `fpr`, and the
/// probes.
fn shape_for(capacity: u64, fpr: f64) -> (u64, u8) {
    let probes = |lines: u64| {
        let bits = lines as f64 * f64::from(LINE_BITS);
        blocked_bloom_probes(bits / capacity as f64)
    };
    let good = |lines| blocked_bloom_fpr_of(capacity, lines, probes(lines)) <= fpr;
    let mut enough = 1;
    // One line per key reaches any allowed rate.
    while enough < capacity && !good(enough) {
        enough *= 2;
    }
    let mut too_few = enough / 2;
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if good(middle) { enough = middle } else { too_few = middle }
    }
    (enough, probes(enough))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg_attr(miri, ignore = "long loops without unsafe code")]
    #[test]
    fn layers_are_no_larger_than_the_rate_needs() {
        let cases = [
            ("1 %", 1_000_000, 0.01, 9.92),
            ("0.1 %", 1_000_000, 0.001, 15.51),
            ("10 %", 100_000, 0.1, 4.9),
            ("one in 100 million", 100_000, 1e-8, 65.4),
        ];
        for (name, keys, fpr, want) in cases {
            let (lines, probes) = shape_for(keys, fpr);
            let bits_per_key = lines as f64 * 512.0 / keys as f64;
            assert!((bits_per_key / want - 1.0).abs() < 0.02, "{name}: {bits_per_key} bits");
            assert!(blocked_bloom_fpr_of(keys, lines, probes) <= fpr, "{name}");
        }
        assert_eq!(shape_for(1, 0.01).0, 1);
    }
}
