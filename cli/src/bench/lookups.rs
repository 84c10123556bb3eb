//! Rounds of lookups: times them and checks each answer.
//!
//! A round times half of its lookups one by one, for percentiles, and the other half in groups, for
//! the mean CPU time: reading the clock twice costs as much as a lookup of an absent key. Keys are
//! generated, and answers are checked, outside of the timed sections.

use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use sievedb_workload::{
    Keys,
    clock::{now, thread_cpu_time},
    value_of,
};

/// Lookups between two readings of the CPU clock; their values stay in memory until the second.
const LOOKUPS_PER_READING: usize = 256;

/// Longest recorded latency: a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Expected result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No value.
    Absent,
    /// The value of the key with this seed.
    Present { seed: u64 },
}

/// Keys of a round, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct RoundKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RoundKeys {
    /// Copies the keys with these numbers.
    pub(crate) fn new(keys: &Keys, numbers: impl Iterator<Item = u64>) -> Self {
        let mut round = Self::default();
        for number in numbers {
            keys.append(number, &mut round.bytes);
            round.ends.push(round.bytes.len());
        }
        round
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }
}

/// Reported quantiles of latency, from 0 to 1.
pub(crate) const QUANTILES: [f64; 14] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9999];

/// Times of one round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Times {
    /// Median latency in ns, including the time to read the clock.
    pub(crate) p50_ns: u64,
    /// 99th percentile of latency in ns.
    pub(crate) p99_ns: u64,
    /// CPU time of this thread per lookup, in ns, without reading a clock.
    pub(crate) cpu_ns: f64,
    /// Latency in ns at each of [`QUANTILES`].
    pub(crate) quantiles_ns: [u64; QUANTILES.len()],
}

/// Numbers of lookups and wrong answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) lookups: u64,
    /// Present keys that were not found.
    pub(crate) lost: u64,
    /// Absent keys that were found.
    pub(crate) invented: u64,
    /// Present keys with a wrong value.
    pub(crate) changed: u64,
    /// The first key with a wrong answer.
    pub(crate) first_wrong: Option<Vec<u8>>,
}

impl Answers {
    fn check(&mut self, key: &[u8], value: Option<&Bytes>, expected: Expected) {
        self.lookups += 1;
        let wrong = match (expected, value) {
            (Expected::Absent, Some(_)) => &mut self.invented,
            (Expected::Present { .. }, None) => &mut self.lost,
            (Expected::Present { seed }, Some(value)) if value[..] != value_of(key, seed) => {
                &mut self.changed
            }
            (Expected::Absent, None) | (Expected::Present { .. }, Some(_)) => return,
        };
        *wrong += 1;
        self.first_wrong.get_or_insert_with(|| key.to_vec());
    }
}

/// Looks up all `keys` with `get`.
///
/// # Errors
///
/// The first error of `get`.
pub(crate) fn round<E>(
    keys: &RoundKeys,
    expected: Expected,
    answers: &mut Answers,
    get: impl Fn(&[u8]) -> Result<Option<Bytes>, E>,
) -> Result<Times, E> {
    let half = keys.len().div_ceil(2);
    let mut latencies = Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("the bounds and digits are in range");
    for index in 0..half {
        let key = keys.key(index);
        let start = now();
        let value = get(key)?;
        let latency = start.elapsed();
        latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX));
        answers.check(key, value.as_ref(), expected);
    }

    let mut cpu = Duration::ZERO;
    let mut values = Vec::with_capacity(LOOKUPS_PER_READING);
    for start in (half..keys.len()).step_by(LOOKUPS_PER_READING) {
        let chunk = start..keys.len().min(start + LOOKUPS_PER_READING);
        let before = thread_cpu_time();
        for index in chunk.clone() {
            values.push(get(keys.key(index))?);
        }
        cpu += thread_cpu_time().saturating_sub(before);
        for (index, value) in chunk.zip(values.drain(..)) {
            answers.check(keys.key(index), value.as_ref(), expected);
        }
    }
    Ok(Times {
        p50_ns: latencies.value_at_quantile(0.50),
        p99_ns: latencies.value_at_quantile(0.99),
        cpu_ns: cpu.as_nanos() as f64 / (keys.len() - half).max(1) as f64,
        quantiles_ns: QUANTILES.map(|quantile| latencies.value_at_quantile(quantile)),
    })
}

/// Returns the median of each time over at least one round.
pub(crate) fn median(rounds: &[Times]) -> Times {
    let middle = |time: fn(&Times) -> f64| {
        let mut times: Vec<f64> = rounds.iter().map(time).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let whole = |time: &dyn Fn(&Times) -> u64| {
        let mut times: Vec<u64> = rounds.iter().map(time).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Times {
        p50_ns: whole(&|times| times.p50_ns),
        p99_ns: whole(&|times| times.p99_ns),
        cpu_ns: middle(|times| times.cpu_ns),
        quantiles_ns: std::array::from_fn(|index| whole(&|times| times.quantiles_ns[index])),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, convert::Infallible};

    use super::*;
    use sievedb_workload::KeySet;

    const SEED: u64 = 5;

    /// Looks up 600 keys in a map changed by `damage`.
    fn answers(
        expected: Expected,
        damage: impl FnOnce(&mut HashMap<Vec<u8>, Bytes>, &RoundKeys),
    ) -> (Answers, Times) {
        let keys = KeySet::iins(SEED, 600, 0).stored;
        let keys = RoundKeys::new(&keys, 0..600);
        let mut map = HashMap::new();
        if expected != Expected::Absent {
            for index in 0..600 {
                let key = keys.key(index);
                map.insert(key.to_vec(), Bytes::copy_from_slice(&value_of(key, SEED)));
            }
        }
        damage(&mut map, &keys);
        let mut answers = Answers::default();
        let get = |key: &[u8]| Ok::<_, Infallible>(map.get(key).cloned());
        let times = round(&keys, expected, &mut answers, get).unwrap();
        (answers, times)
    }

    #[test]
    fn correct_answers_pass() {
        for expected in [Expected::Absent, Expected::Present { seed: SEED }] {
            let (answers, times) = answers(expected, |_, _| ());
            assert_eq!(answers, Answers { lookups: 600, ..Answers::default() }, "{expected:?}");
            assert!(times.p50_ns > 0 && times.p50_ns <= times.p99_ns, "{times:?}");
            assert!(times.cpu_ns > 0.0, "{times:?}");
        }
    }

    #[test]
    fn wrong_answers_are_counted_in_both_halves() {
        let present = Expected::Present { seed: SEED };
        for index in [0, 299, 300, 599] {
            let key = |keys: &RoundKeys| keys.key(index).to_vec();
            let lost = answers(present, |map, keys| drop(map.remove(&key(keys)))).0;
            let changed =
                answers(present, |map, keys| drop(map.insert(key(keys), Bytes::from("x")))).0;
            let invented =
                answers(Expected::Absent, |map, keys| drop(map.insert(key(keys), Bytes::new()))).0;
            assert_eq!((lost.lost, lost.changed, lost.invented), (1, 0, 0), "{index}");
            assert_eq!((changed.lost, changed.changed, changed.invented), (0, 1, 0), "{index}");
            assert_eq!((invented.lost, invented.changed, invented.invented), (0, 0, 1), "{index}");
            assert!(lost.first_wrong.is_some(), "{index}");
            assert_eq!(lost.first_wrong, changed.first_wrong, "{index}");
        }
    }

    #[test]
    fn error_ends_the_round() {
        let keys = RoundKeys::new(&KeySet::iins(SEED, 10, 0).stored, 0..10);
        let result = round(&keys, Expected::Absent, &mut Answers::default(), |_| Err("disk"));
        assert_eq!(result, Err("disk"));
    }

    #[test]
    fn each_time_has_its_own_median() {
        let times = |p50_ns, p99_ns, cpu_ns| Times { p50_ns, p99_ns, cpu_ns, ..Times::default() };
        let rounds = [times(1, 50, 9.0), times(3, 10, 8.0), times(2, 70, 7.0)];
        assert_eq!(median(&rounds), times(2, 50, 8.0));
    }
}
