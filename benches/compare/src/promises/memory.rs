//! Promises at the same total memory for each engine.

use super::{Promise, Rows, Topic, Unit, at_most, named, quotient};
use crate::{
    case::{Case, Fit, Workload},
    report::{Median, RESIDENT_ALLOWANCE_BYTES},
};

/// The contestants that the promises name.
pub(super) const CONTESTANTS: [&str; 4] = ["sievedb", "sievedb-defaults", "rocksdb", "fjall"];

/// Reads of data that fit, and their bounds over the better of the others.
const CACHED: [(Workload, f64); 4] = [
    (Workload::Hit, 0.45),
    (Workload::HitZipf, 0.45),
    (Workload::Scan, 0.5),
    (Workload::ShortScan, 0.45),
];

/// Totals smaller than the data, and bounds of a Zipf hit over the better of the others within the
/// total.
const PARTS: [(Fit, f64); 3] =
    [(Fit::TwoTimes, 0.9), (Fit::FourTimes, 0.95), (Fit::TenTimes, 0.95)];

/// Maximum cost of a store with default options over one with the total.
const DEFAULTS_MAX: f64 = 1.1;

/// Returns the cases of the promises on a machine with `cores` cores.
pub(super) fn cases(cores: usize) -> Vec<Case> {
    let mut workloads = CACHED.map(|(workload, _)| workload).to_vec();
    workloads.extend([Workload::Load, Workload::Miss]);
    let mut cases = Case::all(&workloads, &[Fit::Cached], cores);
    cases.extend(PARTS.map(|(fit, _)| Case { fit, ..Case::cached(Workload::HitZipf) }));
    cases
}

/// Returns `true` if a contestant was measured and its resident memory exceeds the total: its table
/// entry is marked, and no ratio at the same total includes it.
fn exceeds_total(rows: Rows<'_>, name: &str, case: Case) -> bool {
    let row = named(name).and_then(|contestant| rows.of(contestant, case));
    row.is_some_and(|row| row.over_total_bytes() > RESIDENT_ALLOWANCE_BYTES)
}

/// Evaluates the promises by the medians.
pub(super) fn look(rows: Rows<'_>) -> Vec<Promise> {
    let others: Vec<&str> =
        ["rocksdb", "fjall"].into_iter().filter(|name| named(name).is_some()).collect();
    // Without a compiled contestant none is measured.
    let over = match &others[..] {
        [one] => format!("over {one}"),
        _ => "over the better other".to_owned(),
    };
    let ratio =
        |promise: String, bound, measured| at_most(&promise, bound, Unit::Ratio(2), measured);
    let mut promises = Vec::new();
    for (workload, bound) in CACHED {
        let promise = format!("{}, CPU time {over}", workload.title());
        promises.push(ratio(promise, bound, rows.cost_over(Case::cached(workload), &others)));
    }
    for (fit, bound) in PARTS {
        let case = Case { fit, ..Case::cached(Workload::HitZipf) };
        let (within, beyond): (Vec<&str>, Vec<&str>) =
            others.iter().copied().partition(|name| !exceeds_total(rows, name, case));
        let mut over = over.clone();
        if !beyond.is_empty() {
            over += &format!(", without {}, which exceeds the total", beyond.join(" and "));
        }
        let mut add = |what: &str, figure: fn(&Median) -> f64| {
            let promise = format!("{case}, {what} {over}");
            promises.push(ratio(promise, bound, rows.over(case, &within, figure)));
        };
        add("real time", |row| row.figures.ns);
        add("bytes from the device", |row| row.figures.device_read_bytes);
    }
    for workload in CACHED.map(|(workload, _)| workload).into_iter().chain([Workload::Miss]) {
        let promise = format!("Default options, {}, CPU time over the total", workload.title());
        let case = Case::cached(workload);
        let defaults = named("sievedb-defaults").and_then(|one| rows.of(one, case));
        let ours = rows.ours(case).map(Median::cost_ns);
        let measured = quotient(defaults.map(Median::cost_ns), ours);
        promises.push(ratio(promise, DEFAULTS_MAX, measured));
    }
    let over_total = rows.all_ours().map(Median::over_total_bytes).max_by(f64::total_cmp);
    promises.push(at_most(
        "Resident memory beyond the total, largest of all, in MiB",
        RESIDENT_ALLOWANCE_BYTES / 1_048_576.0,
        Unit::Ratio(1),
        over_total.map(|bytes| bytes / 1_048_576.0),
    ));
    promises.into_iter().map(|promise| Promise { topic: Topic::Memory, ..promise }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contestant::Contestant,
        figures::tests::all,
        promises::Topic,
        report::{medians, tests::measurement},
    };

    #[test]
    fn the_better_of_the_others_and_the_defaults_count() {
        let contestants = Topic::Memory.contestants();
        if contestants.len() < 3 {
            return;
        }
        for (others, defaults, want) in [(20.0, 9.5, 16), (19.9, 9.5, 13), (20.0, 10.0, 11)] {
            let mut measurements = Vec::new();
            for case in Topic::Memory.cases(2) {
                measurements.extend(contestants.iter().map(|&contestant| {
                    let figure = match contestant {
                        Contestant::Sievedb => 9.0,
                        Contestant::SievedbDefaults => defaults,
                        // The others have different figures; this is the minimum.
                        other if Some(other) == contestants.last().copied() => others,
                        _ => 30.0,
                    };
                    measurement(contestant, case, 0, all(figure))
                }));
            }
            let promises = look(Rows(&medians(&measurements)));
            let held = promises.iter().filter(|one| one.holds == Some(true)).count();
            assert_eq!((promises.len(), held), (16, want), "{promises:?}");
        }
    }

    #[test]
    fn a_contestant_beyond_the_total_is_excluded() {
        let contestants = Topic::Memory.contestants();
        let Some(&large) = contestants.last().filter(|_| contestants.len() > 3) else { return };
        let mut measurements = Vec::new();
        for case in Topic::Memory.cases(2) {
            measurements.extend(contestants.iter().map(|&contestant| {
                let mut figures = all(if contestant == Contestant::Sievedb { 9.0 } else { 20.0 });
                if contestant == large {
                    figures = all(9.0);
                    figures.memory_peak_bytes = 2.0 * RESIDENT_ALLOWANCE_BYTES;
                }
                measurement(contestant, case, 0, figures)
            }));
        }
        let promises = look(Rows(&medians(&measurements)));
        let of_parts: Vec<_> =
            promises.iter().filter(|one| one.promise.contains("which exceeds the total")).collect();
        assert_eq!(of_parts.len(), 2 * PARTS.len(), "{promises:?}");
        assert!(of_parts.iter().all(|one| one.holds == Some(true)), "{of_parts:?}");
    }
}
