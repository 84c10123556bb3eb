//! Promised figures for lookups of absent keys, checked in each run.

use super::{
    case::{Cache, Case, Filters, KeyKind},
    chance::is_above,
    report::{Setup, Store},
};

/// Maximum data-block requests per lookup of an absent key with Bloom filters of [`BITS_PER_KEY`]
/// bits.
const REQUESTS_BLOOM_MAX: f64 = 0.04;

/// The same per candidate table, if that is more.
const REQUESTS_BLOOM_EACH_MAX: f64 = 0.012;

/// The same with uniform ribbons.
const REQUESTS_RIBBON_MAX: f64 = 0.01;

/// The same with filters planned by the engine.
const REQUESTS_AUTO_MAX: f64 = 0.006;

/// Maximum data-block requests with planned filters and [`KEYS_IDEAL`] keys, as a multiple of
/// [`ideal`](super::fill::ideal).
const IDEAL_FACTOR: f64 = 1.2;

/// Minimum number of keys for that: small filters have parts of constant size.
const KEYS_IDEAL: u64 = 1_000_000;

/// Maximum filter memory, as a multiple of the configured bits per key.
const BITS_FACTOR: f64 = 1.02;

/// Minimum data-block requests per lookup of an absent key without filters. With fewer requests,
/// filters have no effect to measure.
const REQUESTS_UNFILTERED_MIN: f64 = 1.0;

/// Minimum filter bits per key for the promise.
const BITS_PER_KEY: f64 = 10.0;

/// Minimum number of keys for the promise: figures of fewer keys are noise.
const KEYS: u64 = 10_000;

/// Returns all broken promises. Checks times only if `setup` has a limit: they are noisy on shared
/// machines.
pub(crate) fn broken(setup: &Setup, cases: &[Case]) -> Vec<String> {
    cases.iter().filter_map(|case| broken_by(setup, case)).collect()
}

/// Returns filters that use too much memory for a fair comparison.
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

/// Returns stores whose sorted runs differ from the configured runs, from which the expected
/// figures are computed.
pub(crate) fn misshapen(setup: &Setup, stores: &[Store]) -> Vec<String> {
    let flushes = setup.runs.get(1..).unwrap_or_default();
    let want = (flushes.len() as u64, flushes.iter().sum::<u64>());
    let faults = stores.iter().filter_map(|Store { filters, levels, .. }| {
        let level0 = levels.iter().find(|level| level.level == 0);
        let found = level0.map_or((0, 0), |level| (level.runs, level.entries));
        let ((found_runs, found_keys), (runs, keys)) = (found, want);
        (found != want).then(|| {
            format!("{filters}: {found_runs} runs of level 0 with {found_keys} keys, expected {runs} with {keys}")
        })
    });
    faults.collect()
}

/// Returns the maximum data-block requests expected per lookup of an absent key. Assumes filters of
/// at least [`BITS_PER_KEY`] bits. The maximum depends on the number of candidate tables.
fn requests_max(filters: Filters, candidates: f64) -> f64 {
    match filters {
        Filters::Off => f64::INFINITY,
        Filters::Bloom => REQUESTS_BLOOM_MAX.max(REQUESTS_BLOOM_EACH_MAX * candidates),
        Filters::Ribbon => REQUESTS_RIBBON_MAX,
        Filters::Auto => REQUESTS_AUTO_MAX,
    }
}

fn broken_by(setup: &Setup, case: &Case) -> Option<String> {
    if case.kind.key_kind != KeyKind::Absent {
        return None;
    }
    let (count, lookups) = (case.counters().data_block_requests, case.answers.lookups);
    let requests = case.per_lookup(count);
    let exceeds = |max: f64| is_above(count, max * lookups as f64);
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
                && exceeds(requests_max(filters, candidates)) =>
        {
            let max = requests_max(filters, candidates);
            format!("{requests:.4} data-block requests per lookup are above {max}")
        }
        (Filters::Auto, _)
            if setup.stored >= KEYS_IDEAL && exceeds(IDEAL_FACTOR * setup.ideal_requests) =>
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
            format!("{cpu_ns:.0} ns of CPU time per lookup exceed the limit")
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
    fn runs_that_differ_from_the_setup_are_reported() {
        let setup = Setup { runs: vec![900, 60, 40], ..Setup::default() };
        let store = |runs, entries| {
            let level0 = Level { level: 0, runs, entries, ..Level::default() };
            let deepest = Level { level: 6, runs: 1, entries: 900, ..Level::default() };
            Store::new(Filters::Auto, 1.0, 0, vec![level0, deepest])
        };
        let cases = [
            ("as filled", 2, 100, ""),
            ("split", 3, 100, "Auto: 3 runs of level 0 with 100 keys, expected 2 with 100"),
            ("compacted", 2, 40, "2 runs of level 0 with 40 keys"),
        ];
        for (name, runs, entries, want) in cases {
            let faults = misshapen(&setup, &[store(runs, entries)]).join("\n");
            assert_eq!(faults.is_empty(), want.is_empty(), "{name}: {faults}");
            assert!(faults.contains(want), "{name}: {faults}");
        }
    }

    #[test]
    fn promises_are_checked_for_their_cases() {
        let (off, bloom, auto) = (Filters::Off, Filters::Bloom, Filters::Auto);
        // Filters, cache, requests of 1000 lookups, CPU time, stored keys, bits per key, fault.
        let cases = [
            ("unfiltered", off, Cache::Part, 1000, 1.0, 10_000, 10.0, ""),
            ("nothing to spare", off, Cache::Part, 999, 1.0, 10_000, 10.0, "below 1"),
            ("few keys", off, Cache::Part, 999, 1.0, 9_999, 10.0, ""),
            ("filtered", bloom, Cache::Part, 77, 1.0, 10_000, 10.0, ""),
            ("too many", bloom, Cache::Part, 78, 1.0, 10_000, 10.0, "above 0.04"),
            ("too many in memory", bloom, Cache::All, 78, 1.0, 10_000, 10.0, "above 0.04"),
            ("ribbon", Filters::Ribbon, Cache::Part, 31, 1.0, 10_000, 10.0, "above 0.01"),
            ("planned", auto, Cache::Part, 23, 1.0, 10_000, 10.0, ""),
            ("far from the ideal", auto, Cache::Part, 6, 1.0, 1_000_000, 10.0, "times the ideal"),
            ("too many for a plan", auto, Cache::Part, 24, 1.0, 10_000, 10.0, "above 0.006"),
            ("slow plan", auto, Cache::All, 6, 401.0, 10_000, 10.0, "401 ns"),
            ("fewer bits", bloom, Cache::Part, 78, 1.0, 10_000, 9.9, ""),
            ("slow reads", bloom, Cache::Part, 40, 401.0, 10_000, 10.0, ""),
            ("slow", bloom, Cache::All, 40, 401.0, 10_000, 10.0, "401 ns"),
            ("fast", bloom, Cache::All, 40, 400.0, 10_000, 10.0, ""),
        ];
        for (name, filters, cache, requests, cpu_ns, stored, bits_per_key, want) in cases {
            let counters = Counters { data_block_requests: requests, ..Counters::default() };
            let mut case = Case {
                kind: Kind { filters, cache, key_kind: KeyKind::Absent },
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
            case.kind.key_kind = KeyKind::Present;
            assert_eq!(broken(&setup, &[case]), Vec::<String>::new(), "{name}");
        }
    }
}
