//! Space, rate and times of the structures over the same hashes, in interleaved rounds.
//!
//! Times are this thread's CPU time, medians over the rounds. Each round builds each structure once
//! and makes all probes, so noise of the machine affects all structures alike.

use std::hint::black_box;

use indicatif::ProgressBar;
use serde::Serialize;
use sievedb_filter::params::lower_bound_bits_per_key;
use sievedb_workload::{clock::thread_cpu_time, random::Random};

use crate::{
    allocation::bytes_of,
    contestants::{Built, FAMILIES, Family, Given, Origin, Setting},
};

/// Bounds of the number of probed keys. It equals that of the stored keys within them, so that a
/// filter larger than the caches is probed everywhere.
const ASKED_MIN: usize = 1 << 16;
const ASKED_MAX: usize = 1 << 22;

/// Minimum number of probes or insertions timed; fewer are repeated, to be measurable.
const STEPS_MIN: usize = 1 << 19;

/// Keys per call when the rate is measured.
const CHUNK: u64 = 1 << 16;

/// Extent of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Absent keys to measure a rate with.
    pub(crate) rate_questions: u64,
}

/// Hashes of stored and probed keys.
pub(crate) struct Hashes {
    pub(crate) stored: Vec<u64>,
    pub(crate) absent: Vec<u64>,
    /// Stored hashes, in random order.
    pub(crate) present: Vec<u64>,
    /// Yields more absent hashes: the outputs of one generator are distinct.
    more: Random,
}

impl Hashes {
    pub(crate) fn new(keys: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut take = |count| (0..count).map(|_| random.next()).collect::<Vec<_>>();
        let stored = take(keys);
        let absent = take(keys.clamp(ASKED_MIN, ASKED_MAX));
        let mut order = Random::new(!seed);
        let present = absent.iter().map(|_| *order.choose(&stored)).collect();
        Self { stored, absent, present, more: random }
    }

    /// Returns the false positives of the filter for `questions` absent keys.
    pub(crate) fn false_positives(&self, filter: &dyn Built, questions: u64) -> u64 {
        let mut random = self.more.clone();
        let mut chunk = vec![0; CHUNK as usize];
        let mut found = 0;
        for _ in 0..questions.div_ceil(CHUNK) {
            chunk.fill_with(|| random.next());
            found += filter.count(&chunk) as u64;
        }
        found
    }
}

/// Measurements of a structure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) keys: usize,
    pub(crate) structure: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) ours: bool,
    /// The structure accepts keys only, and hashes the given hash again.
    pub(crate) hashes_itself: bool,
    #[serde(flatten)]
    pub(crate) space: Space,
    pub(crate) build_ns: f64,
    pub(crate) absent_ns: f64,
    pub(crate) present_ns: f64,
    pub(crate) batched_ns: Option<f64>,
}

/// The measurements that hardly depend on the machine.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Space {
    /// From allocated memory.
    pub(crate) bits_per_key: f64,
    /// From the stored form with its trailer, for a filter of a table.
    pub(crate) stored_bits_per_key: Option<f64>,
    pub(crate) fpr_measured: f64,
    pub(crate) fpr_expected: Option<f64>,
    /// Relative excess of `bits_per_key` over the lower bound at this rate.
    pub(crate) over_bound: f64,
}

impl Space {
    pub(crate) fn of(filter: &dyn Built, bytes: usize, hashes: &Hashes, questions: u64) -> Self {
        let questions = questions.next_multiple_of(CHUNK);
        let found = hashes.false_positives(filter, questions);
        let fpr_measured = found as f64 / questions as f64;
        let fpr_expected = filter.expected_fpr();
        let bits = |bytes: usize| bytes as f64 * 8.0 / hashes.stored.len() as f64;
        let rate = trusted(fpr_measured, fpr_expected, questions);
        Self {
            bits_per_key: bits(bytes),
            stored_bits_per_key: filter.stored_bytes().map(bits),
            fpr_measured,
            fpr_expected,
            over_bound: bits(bytes) / lower_bound_bits_per_key(rate) - 1.0,
        }
    }
}

/// Returns the stated rate, which has no sampling error, if the measured rate agrees with it within
/// three deviations and 3 %. Returns the measured rate otherwise.
fn trusted(measured: f64, expected: Option<f64>, questions: u64) -> f64 {
    let agrees = |rate: &f64| {
        let deviation = (rate / questions as f64).sqrt();
        (measured - rate).abs() <= 3.0 * deviation + 0.03 * rate
    };
    let least = 1.0 / questions as f64;
    expected.filter(agrees).unwrap_or(measured).clamp(least, 1.0)
}

/// Measures every setting of the structures with a name prefix in `only`, or of all if it is empty.
///
/// # Errors
///
/// Names a structure with a false negative, or one of ours whose rate differs from the stated rate.
pub(crate) fn rows(
    hashes: &Hashes,
    effort: Effort,
    only: &[String],
    bar: &ProgressBar,
) -> Result<Vec<Row>, String> {
    let chosen =
        |family: &&Family| only.is_empty() || only.iter().any(|name| family.name.starts_with(name));
    let mut turns = Vec::new();
    for family in FAMILIES.iter().filter(chosen) {
        turns.extend(family.settings.iter().map(|&setting| Turn::new(*family, setting, hashes)));
    }
    if turns.is_empty() {
        return Err(format!("no structure is called {}", only.join(" or ")));
    }
    bar.set_length(((effort.rounds + 1) * turns.len()) as u64);
    for _ in 0..effort.rounds {
        for turn in &mut turns {
            turn.take(hashes);
            bar.inc(1);
        }
    }
    let mut rows = Vec::with_capacity(turns.len());
    for turn in turns {
        rows.push(turn.row(hashes, effort.rate_questions)?);
        bar.inc(1);
    }
    Ok(rows)
}

/// A structure with a setting, and the times of the rounds so far.
struct Turn {
    family: Family,
    setting: Setting,
    filter: Box<dyn Built>,
    bytes: usize,
    build: Vec<f64>,
    absent: Vec<f64>,
    present: Vec<f64>,
    batched: Vec<f64>,
}

impl Turn {
    fn new(family: Family, setting: Setting, hashes: &Hashes) -> Self {
        let (filter, bytes) = bytes_of(|| (family.build)(&hashes.stored, setting.value));
        let [build, absent, present, batched] = [const { Vec::new() }; 4];
        Self { family, setting, filter, bytes, build, absent, present, batched }
    }

    fn take(&mut self, hashes: &Hashes) {
        let keys = hashes.stored.len();
        let builds = (STEPS_MIN / 16 / keys.max(1)).max(1);
        let build = || drop(black_box((self.family.build)(&hashes.stored, self.setting.value)));
        self.build.push(ns(build, builds, keys));

        let asked = hashes.absent.len();
        let passes = (STEPS_MIN / asked).max(1);
        for (hashes, times) in
            [(&hashes.absent, &mut self.absent), (&hashes.present, &mut self.present)]
        {
            // Warms the caches, which other structures have used meanwhile.
            black_box(self.filter.count(&hashes[..ASKED_MIN]));
            let ask = || {
                black_box(self.filter.count(black_box(hashes)));
            };
            times.push(ns(ask, passes, asked));
        }
        let mut answers = vec![false; asked];
        if self.filter.answer_all(&hashes.absent[..ASKED_MIN], &mut answers[..ASKED_MIN]) {
            let ask = || {
                self.filter.answer_all(black_box(&hashes.absent), &mut answers);
                black_box(&mut answers);
            };
            self.batched.push(ns(ask, passes, asked));
        }
    }

    fn row(self, hashes: &Hashes, questions: u64) -> Result<Row, String> {
        let name = format!("{}, {}", self.family.name, self.setting.name);
        let keys = hashes.stored.len();
        if self.filter.count(&hashes.stored) != keys {
            return Err(format!("{name}, denies a key that it holds"));
        }
        let space = Space::of(&*self.filter, self.bytes, hashes, questions);
        let ours = self.family.origin == Origin::Ours;
        if let Some(expected) = space.fpr_expected.filter(|_| ours) {
            let deviation = (expected / questions as f64).sqrt();
            if (space.fpr_measured - expected).abs() > 5.0 * deviation + 0.1 * expected {
                return Err(format!("{name}: rate {}, it states {expected}", space.fpr_measured));
            }
        }
        Ok(Row {
            keys,
            structure: self.family.name,
            setting: self.setting.name,
            ours,
            hashes_itself: self.family.given == Given::Key,
            space,
            build_ns: median(self.build),
            absent_ns: median(self.absent),
            present_ns: median(self.present),
            batched_ns: (!self.batched.is_empty()).then(|| median(self.batched)),
        })
    }
}

/// Returns the nanoseconds per step of `work`, which has `steps` and is repeated.
pub(crate) fn ns(mut work: impl FnMut(), repeats: usize, steps: usize) -> f64 {
    let start = thread_cpu_time();
    for _ in 0..repeats {
        work();
    }
    let time = thread_cpu_time() - start;
    time.as_secs_f64() * 1e9 / (repeats * steps.max(1)) as f64
}

/// Returns the median, or the upper middle of an even number. Requires a number.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_rate_is_checked_against_the_measured_rate() {
        let cases = [
            ("none stated", 0.02, None, 0.02),
            ("agrees", 0.0101, Some(0.01), 0.01),
            ("does not", 0.02, Some(0.01), 0.02),
            ("nothing found", 0.0, Some(1e-7), 1e-7),
            ("nothing found, none stated", 0.0, None, 1e-7),
        ];
        for (name, measured, expected, want) in cases {
            assert_eq!(trusted(measured, expected, 10_000_000), want, "{name}");
        }
    }

    #[test]
    fn median_is_the_middle_value() {
        for (numbers, want) in [(vec![3.0, 1.0, 2.0], 2.0), (vec![7.0], 7.0), (vec![1.0, 2.0], 2.0)]
        {
            assert_eq!(median(numbers), want);
        }
    }

    /// Every structure holds its keys and has about the rate it states.
    #[test]
    fn all_structures_can_be_measured() {
        let hashes = Hashes::new(20_000, 1);
        let effort = Effort { rounds: 1, rate_questions: 1 << 18 };
        let rows = rows(&hashes, effort, &[], &ProgressBar::hidden()).unwrap();
        let settings: usize = FAMILIES.iter().map(|family| family.settings.len()).sum();
        assert_eq!(rows.len(), settings);
        for row in rows {
            let space = row.space;
            assert!(space.over_bound > 0.0 && space.over_bound < 6.0, "{row:?}");
            assert!(space.fpr_measured < 0.05, "{row:?}");
        }
    }
}
