//! What SieveDB promises of a lookup of an absent key, in figures that a run must reach.

use super::{
    case::{Asked, Cache, Case, Filters},
    report::{Setup, Store},
};

/// Most data-block requests per lookup of an absent key, with Bloom filters of [`BITS_PER_KEY`]
/// bits...
const REQUESTS_BLOOM_MAX: f64 = 0.04;

/// ...or so many for each table that may have the key, if that is more.
const REQUESTS_BLOOM_EACH_MAX: f64 = 0.012;

/// The same with ribbons of as many bits per key everywhere.
const REQUESTS_RIBBON_MAX: f64 = 0.01;

/// The same with the filters that the engine plans itself.
const REQUESTS_AUTO_MAX: f64 = 0.006;

/// With them, and [`KEYS_IDEAL`] keys, at most so many times what is possible, see
/// [`ideal`](super::fill::ideal).
const IDEAL_FACTOR: f64 = 1.2;

/// Fewest keys for that. Filters of few keys have parts that do not shrink with them.
const KEYS_IDEAL: u64 = 1_000_000;

/// Filters that were asked for the same bits per key take at most this factor more memory.
const BITS_FACTOR: f64 = 1.02;

/// Fewest data-block requests per lookup of an absent key without filters. With fewer the keys
/// lie so that filters have nothing to spare, and the run shows nothing.
const REQUESTS_UNFILTERED_MIN: f64 = 1.0;

/// Fewest filter bits per key that the promise is about.
const BITS_PER_KEY: f64 = 10.0;

/// Fewest keys that the promise is about: with less the figures are chance.
const KEYS: u64 = 10_000;

/// Every promise that does not hold, in words. Times are judged only if `setup` asks for it: on a
/// machine that others use they say little.
pub(crate) fn broken(setup: &Setup, cases: &[Case]) -> Vec<String> {
    cases.iter().filter_map(|case| broken_by(setup, case)).collect()
}

/// As [`broken`], of the memory: what is compared has to be equal.
pub(crate) fn unequal(setup: &Setup, stores: &[Store]) -> Vec<String> {
    let allowed = setup.bits_per_key * setup.stored as f64 / 8.0 * BITS_FACTOR;
    let is_large =
        |store: &&Store| setup.stored >= KEYS_IDEAL && store.filter_memory_bytes as f64 > allowed;
    let faults = stores.iter().filter(is_large).map(|store| {
        let Store { filters, filter_memory_bytes, .. } = store;
        format!("{filters}: filters of {filter_memory_bytes} bytes are above {allowed:.0}")
    });
    faults.collect()
}

/// Every store whose sorted runs are not those that it was filled with, in words: what is expected
/// of it is computed from those.
pub(crate) fn misshapen(setup: &Setup, stores: &[Store]) -> Vec<String> {
    let flushes = setup.runs.get(1..).unwrap_or_default();
    let want = (flushes.len() as u64, flushes.iter().sum::<u64>());
    let faults = stores.iter().filter_map(|Store { filters, levels, .. }| {
        let level0 = levels.iter().find(|level| level.level == 0);
        let found = level0.map_or((0, 0), |level| (level.runs, level.entries));
        let ((found_runs, found_keys), (runs, keys)) = (found, want);
        (found != want).then(|| {
            format!("{filters}: {found_runs} runs of level 0 with {found_keys} keys, not {runs} with {keys}")
        })
    });
    faults.collect()
}

/// `expected` per lookup, and what chance may add to it: four deviations.
pub(crate) fn with_chance(expected: f64, lookups: u64) -> f64 {
    expected + 4.0 * (expected / lookups.max(1) as f64).sqrt()
}

/// Most data-block requests per lookup of an absent key with filters of [`BITS_PER_KEY`] bits or
/// more, when so many tables may have it.
fn requests_max(filters: Filters, candidates: f64) -> f64 {
    match filters {
        Filters::Off => f64::INFINITY,
        Filters::Bloom => REQUESTS_BLOOM_MAX.max(REQUESTS_BLOOM_EACH_MAX * candidates),
        Filters::Ribbon => REQUESTS_RIBBON_MAX,
        Filters::Auto => REQUESTS_AUTO_MAX,
    }
}

fn broken_by(setup: &Setup, case: &Case) -> Option<String> {
    if case.kind.asked != Asked::Absent {
        return None;
    }
    let requests = case.per_lookup(case.counters().data_block_requests);
    let candidates = case.per_lookup(case.counters().candidates);
    let cpu_ns = case.times.cpu_ns;
    let fault = match (case.kind.filters, case.kind.cache) {
        (Filters::Off, _) if setup.stored >= KEYS && requests < REQUESTS_UNFILTERED_MIN => {
            format!(
                "{requests:.4} data-block requests per lookup are below {REQUESTS_UNFILTERED_MIN}"
            )
        }
        (filters, _)
            if setup.stored >= KEYS
                && setup.bits_per_key >= BITS_PER_KEY
                && requests > requests_max(filters, candidates) =>
        {
            let max = requests_max(filters, candidates);
            format!("{requests:.4} data-block requests per lookup are above {max}")
        }
        (Filters::Auto, _)
            if setup.stored >= KEYS_IDEAL
                && requests
                    > with_chance(IDEAL_FACTOR * setup.ideal_requests, case.answers.lookups) =>
        {
            let ideal = setup.ideal_requests;
            format!(
                "{requests:.5} data-block requests per lookup are above {IDEAL_FACTOR} times the \
                 ideal, {ideal:.5}"
            )
        }
        (Filters::Bloom | Filters::Ribbon | Filters::Auto, Cache::All)
            if setup.miss_cpu_ns_max.is_some_and(|max| cpu_ns > max) =>
        {
            format!("{cpu_ns:.0} ns of CPU time per lookup are too many")
        }
        _ => return None,
    };
    Some(format!("{}: {fault}", case.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{
        case::{Kind, Reads},
        levels::{Counters, Level},
        lookups::{Answers, Times},
    };

    #[test]
    fn a_store_has_the_runs_that_it_was_filled_with() {
        let setup = Setup { runs: vec![900, 60, 40], ..Setup::default() };
        let store = |runs, entries| {
            let level0 = Level { level: 0, runs, entries, ..Level::default() };
            let deepest = Level { level: 6, runs: 1, entries: 900, ..Level::default() };
            Store::new(Filters::Auto, 1.0, 0, vec![level0, deepest])
        };
        let cases = [
            ("as filled", 2, 100, ""),
            ("split", 3, 100, "Auto: 3 runs of level 0 with 100 keys, not 2 with 100"),
            ("compacted", 2, 40, "2 runs of level 0 with 40 keys"),
        ];
        for (name, runs, entries, want) in cases {
            let faults = misshapen(&setup, &[store(runs, entries)]).join("\n");
            assert_eq!(faults.is_empty(), want.is_empty(), "{name}: {faults}");
            assert!(faults.contains(want), "{name}: {faults}");
        }
    }

    #[test]
    fn each_promise_is_checked_where_it_is_given() {
        let (off, bloom, auto) = (Filters::Off, Filters::Bloom, Filters::Auto);
        // Filters, cache, requests of 1000 lookups, CPU time, stored keys, bits per key, and what
        // is broken.
        let cases = [
            ("unfiltered", off, Cache::Part, 1000, 1.0, 10_000, 10.0, ""),
            ("nothing to spare", off, Cache::Part, 999, 1.0, 10_000, 10.0, "below 1"),
            ("few keys", off, Cache::Part, 999, 1.0, 9_999, 10.0, ""),
            ("filtered", bloom, Cache::Part, 40, 1.0, 10_000, 10.0, ""),
            ("too many", bloom, Cache::Part, 41, 1.0, 10_000, 10.0, "above 0.04"),
            ("too many in memory", bloom, Cache::All, 41, 1.0, 10_000, 10.0, "above 0.04"),
            ("ribbon", Filters::Ribbon, Cache::Part, 11, 1.0, 10_000, 10.0, "above 0.01"),
            ("planned", auto, Cache::Part, 6, 1.0, 10_000, 10.0, ""),
            ("far from the ideal", auto, Cache::Part, 6, 1.0, 1_000_000, 10.0, "times the ideal"),
            ("too many for a plan", auto, Cache::Part, 7, 1.0, 10_000, 10.0, "above 0.006"),
            ("slow plan", auto, Cache::All, 6, 401.0, 10_000, 10.0, "401 ns"),
            ("fewer bits", bloom, Cache::Part, 41, 1.0, 10_000, 9.9, ""),
            ("slow reads", bloom, Cache::Part, 40, 401.0, 10_000, 10.0, ""),
            ("slow", bloom, Cache::All, 40, 401.0, 10_000, 10.0, "401 ns"),
            ("fast", bloom, Cache::All, 40, 400.0, 10_000, 10.0, ""),
        ];
        for (name, filters, cache, requests, cpu_ns, stored, bits_per_key, want) in cases {
            let counters = Counters { data_block_requests: requests, ..Counters::default() };
            let mut case = Case {
                kind: Kind { filters, cache, asked: Asked::Absent },
                answers: Answers { lookups: 1000, ..Answers::default() },
                gets: 1000,
                levels: vec![Level { counters, ..Level::default() }],
                reads: Reads { calls: 0, bytes: 0 },
                times: Times { p50_ns: 1, p99_ns: 1, cpu_ns, ..Times::default() },
            };
            let setup = Setup {
                stored,
                bits_per_key,
                ideal_requests: 0.0001,
                miss_cpu_ns_max: Some(400.0),
                ..Setup::default()
            };
            let faults = broken(&setup, &[case.clone()]).join("\n");
            assert_eq!(faults.is_empty(), want.is_empty(), "{name}: {faults}");
            assert!(faults.contains(want), "{name}: {faults}");
            case.kind.asked = Asked::Present;
            assert_eq!(broken(&setup, &[case]), Vec::<String>::new(), "{name}");
        }
    }
}
