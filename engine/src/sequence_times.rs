//! Times of writes: samples of sequence numbers and times of the store clock.
//!
//! A write adds a sample if the last one is older than [`PERIOD_MS`]: the time, and the sequence
//! number placed last before it. So writes between two samples were placed within one period of the
//! earlier one. After a crash this does not hold for the time since the last flush: the samples of
//! writes that were not flushed are lost.
//!
//! The list grows with the logarithm of time: a sample is dropped if its neighbors are closer
//! together than 1/[`AGE_SHARE`] of its age. So a time is accurate to a second or twice that share.
//! One year of writes leaves some 4,000 samples of 16 bytes.

use sievedb_format::{Corruption, SEQUENCE_MAX, SequenceNumber};

/// Minimum time between two samples, in milliseconds.
const PERIOD_MS: u64 = 1000;

/// Divisor of the age of a sample: it may be dropped if its neighbors are closer than the quotient.
const AGE_SHARE: u64 = 256;

/// Number of samples between two searches for samples to drop.
const SAMPLES_PER_SEARCH: usize = 256;

/// A time of the store clock, in milliseconds, and the last sequence number placed by then.
pub(crate) type Sample = (u64, SequenceNumber);

/// Samples, ascending by time and by sequence number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SequenceTimes {
    samples: Vec<Sample>,
    /// Number of samples after the last search for samples to drop.
    kept: usize,
}

impl SequenceTimes {
    /// Returns the time from which on the next write adds a sample; 0 before the first sample.
    pub(crate) fn next_ms(&self) -> u64 {
        self.samples.last().map_or(0, |(ms, _)| ms.saturating_add(PERIOD_MS))
    }

    /// Adds a sample. A sample that is not newer than the last has no effect.
    pub(crate) fn note(&mut self, ms: u64, sequence: SequenceNumber) {
        let is_newer = |&(last_ms, last): &Sample| last_ms < ms && last <= sequence;
        if self.samples.last().is_none_or(is_newer) {
            self.samples.push((ms, sequence));
            self.thin();
        }
    }

    /// Adds a sample of a follower, which shows writes above `sequence` from `ms` on: nothing else
    /// is known of the time of writes above `flushed`.
    pub(crate) fn note_shown(
        &mut self,
        ms: u64,
        sequence: SequenceNumber,
        flushed: SequenceNumber,
    ) {
        if self.next_ms() <= ms {
            self.note(ms, sequence.max(flushed));
        }
    }

    /// Adds a sample from the manifest.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if it is older than the last.
    pub(crate) fn append(&mut self, (ms, sequence): Sample) -> Result<(), Corruption> {
        let what = "time of a sequence number";
        if sequence > SEQUENCE_MAX {
            return Err(Corruption::OutOfRange { what, value: sequence });
        }
        if self.samples.last().is_some_and(|&(last_ms, last)| last_ms >= ms || last > sequence) {
            return Err(Corruption::Order { what });
        }
        self.note(ms, sequence);
        Ok(())
    }

    /// Returns the samples that are newer than all of `other`.
    pub(crate) fn newer_than(&self, other: &Self) -> &[Sample] {
        let last_ms = other.samples.last().map(|&(ms, _)| ms);
        let from = self.samples.partition_point(|&(ms, _)| Some(ms) <= last_ms);
        &self.samples[from..]
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the last sequence number placed by `ms`, or soon after. `None` if no later sample
    /// exists.
    pub(crate) fn sequence_at(&self, ms: u64) -> Option<SequenceNumber> {
        let later = self.samples.partition_point(|&(time, _)| time <= ms);
        self.samples.get(later).map(|&(_, sequence)| sequence)
    }

    /// Returns a sequence number that was placed by `ms`, the last one or one soon before. Returns
    /// `None` if no sample is that old.
    pub(crate) fn sequence_before(&self, ms: u64) -> Option<SequenceNumber> {
        let later = self.samples.partition_point(|&(time, _)| time <= ms);
        // The next sample is not used: a crash may have lost samples in between.
        later.checked_sub(1).map(|last| self.samples[last].1)
    }

    /// Returns the latest known time at which no write after `sequence` was placed, if any.
    pub(crate) fn time_of(&self, sequence: SequenceNumber) -> Option<u64> {
        let later = self.samples.partition_point(|&(_, placed)| placed <= sequence);
        later.checked_sub(1).map(|last| self.samples[last].0)
    }

    /// Returns `true` if every write was placed before `ms`, provided that the writes since the
    /// last sample add samples.
    pub(crate) fn is_later_than_all(&self, ms: u64) -> bool {
        !self.samples.is_empty() && self.next_ms() <= ms
    }

    fn thin(&mut self) {
        if self.samples.len() < self.kept + SAMPLES_PER_SEARCH {
            return;
        }
        let newest_ms = self.samples.last().map_or(0, |&(ms, _)| ms);
        let mut kept: Vec<Sample> = Vec::with_capacity(self.samples.len());
        for (at, &sample) in self.samples.iter().enumerate() {
            let neighbours = kept.last().zip(self.samples.get(at + 1));
            let is_dense = neighbours.is_some_and(|(older, newer)| {
                newer.0 - older.0 <= (newest_ms - sample.0) / AGE_SHARE
            });
            if !is_dense {
                kept.push(sample);
            }
        }
        kept.shrink_to_fit();
        self.kept = kept.len();
        self.samples = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_between_samples() {
        let mut times = SequenceTimes::default();
        assert_eq!((times.next_ms(), times.sequence_at(5), times.time_of(5)), (0, None, None));
        for sample in [(1000, 3), (2000, 3), (5000, 7)] {
            times.append(sample).expect("they ascend");
        }
        assert_eq!(times.next_ms(), 6000);
        assert_eq!([5999, 6000].map(|ms| times.is_later_than_all(ms)), [false, true]);
        let at = [0, 999, 1000, 1999, 2000, 4999, 5000].map(|ms| times.sequence_at(ms));
        assert_eq!(at, [Some(3), Some(3), Some(3), Some(3), Some(7), Some(7), None]);
        let before = [999, 1000, 4999, 5000, 9000].map(|ms| times.sequence_before(ms));
        assert_eq!(before, [None, Some(3), Some(3), Some(7), Some(7)]);
        let time_of = [2, 3, 6, 7, 8].map(|sequence| times.time_of(sequence));
        assert_eq!(time_of, [None, Some(2000), Some(2000), Some(5000), Some(5000)]);
    }

    #[test]
    fn samples_out_of_order_are_refused() {
        let mut times = SequenceTimes::default();
        times.append((1000, 3)).expect("the first");
        for sample in [(1000, 4), (999, 4), (2000, 2)] {
            assert!(matches!(times.append(sample), Err(Corruption::Order { .. })), "{sample:?}");
            times.note(sample.0, sample.1);
        }
        let too_large = times.append((3000, SEQUENCE_MAX + 1));
        assert!(matches!(too_large, Err(Corruption::OutOfRange { .. })));
        assert_eq!(times.samples(), [(1000, 3)]);
    }

    /// Few samples of old times remain, and each is accurate to a second and 0.8 % of its age.
    #[test]
    fn a_year_of_samples_stays_small_and_precise() {
        let mut times = SequenceTimes::default();
        // When each write was placed, by sequence number from 1.
        let mut placed_ms = vec![0];
        let mut ms = 0;
        while ms < 365 * 86_400_000_u64 {
            // Some days in steps of a second, the rest in longer steps: otherwise the test would
            // take a minute.
            let step = if placed_ms.len() < 200_000 { 1 } else { 60 };
            ms += 1000 * step;
            times.note(ms, placed_ms.len() as u64 - 1);
            placed_ms.push(ms);
        }
        assert!(times.samples().len() < 5000, "{} samples", times.samples().len());
        for &(from, _) in times.samples() {
            for probe in [from - 1, from, from + 700] {
                let placed = placed_ms.partition_point(|&it| it <= probe) as u64 - 1;
                if let Some(found) = times.sequence_at(probe) {
                    assert!(found >= placed, "{probe}: {found} of {placed}");
                    let late_ms = placed_ms[found as usize].saturating_sub(probe);
                    assert!(late_ms <= 1000 + 2 * (ms - probe) / AGE_SHARE, "{probe}: {late_ms}");
                }
                if let Some(found) = times.sequence_before(probe) {
                    assert!(found <= placed, "{probe}: {found} of {placed}");
                }
            }
        }
    }
}
