//! Limits of the filters, and the measured figures.
//!
//! Limits of space and of ratios within one run hold on every machine. Limits of absolute times
//! hold on an idle Zen 5 with AVX-512.

use serde::Serialize;

use crate::{measure::Row, resident::Resident, text};

/// One limit and its measured figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    what: String,
    found: f64,
    limit: f64,
    /// `true` if it is independent of the machine's speed.
    pub(crate) anywhere: bool,
}

impl Check {
    pub(crate) fn holds(&self) -> bool {
        self.found <= self.limit
    }
}

/// Returns the limits that these measurements cover.
pub(crate) fn checks(rows: &[Row], residents: &[Resident]) -> Vec<Check> {
    let mut keys: Vec<usize> = rows.iter().map(|row| row.keys).collect();
    keys.dedup();
    let mut checks = Vec::new();
    for keys in keys {
        let row = |structure: &str, setting: &str| {
            let is_it =
                |row: &&Row| (row.keys, row.structure, row.setting) == (keys, structure, setting);
            rows.iter().find(is_it)
        };
        let of = |what: &str, found: Option<f64>, limit: Option<f64>, anywhere: bool| {
            let what = format!("{}, {what}", text::count(keys as u64));
            Some(Check { what, found: found?, limit: limit?, anywhere })
        };
        let (bloom, split) = (row("BlockedBloom", "10 bits"), row("sbbf-rs-safe", "10 bits"));
        let (seven, fuse) = (row("Ribbon", "7 columns"), row("xorf BinaryFuse8", "8 bits"));
        // With the rate of 8-bit fingerprints.
        let eight = row("Ribbon", "8 columns");
        let (one, tenth) = (row("Ribbon", "1 %"), row("Ribbon", "0.1 %"));
        let stored = |row: Option<&Row>| row?.space.stored_bits_per_key;
        let absent = |row: Option<&Row>| Some(row?.absent_ns);
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        let large = keys >= 100_000;
        checks.extend(
            [
                of(
                    "Ribbon stored, bits over 7 columns",
                    ratio(stored(seven), Some(7.0)),
                    over_columns(keys),
                    true,
                ),
                of("Ribbon stored, bits per key at 1 %", stored(one), large.then_some(6.74), true),
                of(
                    "Ribbon stored, bits per key at 0.1 %",
                    stored(tenth),
                    large.then_some(10.02),
                    true,
                ),
                of(
                    "BlockedBloom rate at 10 bits, %",
                    bloom.and_then(|row| row.space.fpr_expected).map(|rate| rate * 100.0),
                    large.then_some(0.97),
                    true,
                ),
                of(
                    "Ribbon / xorf BinaryFuse8, absent",
                    ratio(absent(seven), absent(fuse)),
                    (keys <= 100_000).then_some(1.3),
                    true,
                ),
                of(
                    "Ribbon of 8 columns / the same",
                    ratio(absent(eight), absent(fuse)),
                    (keys <= 100_000).then_some(1.3),
                    true,
                ),
                of(
                    "BlockedBloom / sbbf-rs-safe, absent",
                    ratio(absent(bloom), absent(split)),
                    Some(1.0),
                    true,
                ),
                of("Ribbon absent, ns", absent(seven), by_size(keys, 5.5, 48.0), false),
                of(
                    "Ribbon batched by 32, ns",
                    seven.and_then(|row| row.batched_ns),
                    (keys >= 100_000_000).then_some(15.0),
                    false,
                ),
                of(
                    "Ribbon build, ns",
                    seven.map(|row| row.build_ns),
                    match keys {
                        1_000_000 => Some(36.0),
                        100_000_000 => Some(50.0),
                        _ => None,
                    },
                    false,
                ),
                of("BlockedBloom absent, ns", absent(bloom), by_size(keys, 2.0, 20.0), false),
                of(
                    "BlockedBloom batched by 32, ns",
                    bloom.and_then(|row| row.batched_ns),
                    (keys >= 100_000_000).then_some(11.5),
                    false,
                ),
                of(
                    "BlockedBloom build, ns",
                    bloom.map(|row| row.build_ns),
                    (keys <= 1_000_000).then_some(4.8),
                    false,
                ),
            ]
            .into_iter()
            .flatten(),
        );
    }
    for (structure, limit) in [("BlockedBloom", 2.5), ("Ribbon", 5.0)] {
        // The faster call, which depends on the share of the filters in the caches.
        let ways = residents.iter().filter(|resident| resident.structure == structure);
        let found = ways.min_by(|a, b| a.ns_per_filter.total_cmp(&b.ns_per_filter));
        checks.extend(found.map(|found| Check {
            what: format!("{structure}, one key against 8 filters, ns per filter"),
            found: found.ns_per_filter,
            limit,
            anywhere: false,
        }));
    }
    checks
}

/// Returns the maximum bits of a ribbon per column and key, stored with its trailer.
fn over_columns(keys: usize) -> Option<f64> {
    match keys {
        100_000.. => Some(1.003),
        10_000.. => Some(1.012),
        1_000.. => Some(1.05),
        _ => None,
    }
}

/// Returns the limit for filters in the caches, or for filters much larger than the caches.
fn by_size(keys: usize, in_cache: f64, far_out: f64) -> Option<f64> {
    match keys {
        ..=100_000 => Some(in_cache),
        100_000_000.. => Some(far_out),
        _ => None,
    }
}

pub(crate) fn table(checks: &[Check]) -> String {
    let cells = |check: &Check| {
        let verdict = match (check.holds(), check.anywhere) {
            (true, _) => "holds",
            (false, true) => "MISSED",
            (false, false) => "above, on this machine",
        };
        let [found, limit] = [check.found, check.limit].map(|number| format!("{number:.4}"));
        vec![check.what.clone(), verdict.to_owned(), found, limit]
    };
    text::table(&["keys, what", "", "measured", "at most"], 2, checks.iter().map(cells).collect())
}
