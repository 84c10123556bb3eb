//! Promises of writes at the same total memory for each engine.

use super::{Promise, Rows, Topic, Unit, at_most, named};
use crate::{
    case::{Case, Fit, Workload},
    report::Median,
};

/// The contestants that the promises name.
pub(super) const CONTESTANTS: [&str; 6] =
    ["sievedb", "rocksdb", "fjall", "surrealkv", "mace", "canopydb"];

/// The log-structured engines among the others.
const LSMS: [&str; 4] = ["rocksdb", "fjall", "surrealkv", "mace"];

/// Writes one by one.
const SINGLE: [Workload; 4] =
    [Workload::LoadSingle, Workload::LoadAscending, Workload::Overwrite, Workload::Delete];

/// Threads that sync each write, and bounds over the best of the others.
const SYNCED: [(usize, f64); 3] = [(1, 1.0), (8, 0.7), (48, 0.7)];

/// Returns the cases of the promises on a machine with `cores` cores.
pub(super) fn cases(cores: usize) -> Vec<Case> {
    let mut workloads = SINGLE.to_vec();
    workloads.push(Workload::Load);
    let mut cases = Case::all(&workloads, &[Fit::Cached], cores);
    cases.extend(SYNCED.map(|(threads, _)| synced(threads)));
    cases
}

fn synced(threads: usize) -> Case {
    Case { threads, ..Case::cached(Workload::SyncWrite) }
}

/// Returns the CPU time of all threads for an entry.
fn cpu_ns(row: &Median) -> f64 {
    row.figures.cpu_ns + row.figures.background_cpu_ns
}

/// Evaluates the promises by the medians.
pub(super) fn look(rows: Rows<'_>) -> Vec<Promise> {
    let compiled = |names: &[&'static str]| -> Vec<&str> {
        names.iter().copied().filter(|name| named(name).is_some()).collect()
    };
    let (lsms, others) = (compiled(&LSMS), compiled(&CONTESTANTS[1..]));
    let ratio = |promise: &str, bound, measured| at_most(promise, bound, Unit::Ratio(2), measured);
    let mut promises = Vec::new();
    for workload in SINGLE {
        for (whose, figure) in
            [("all threads", cpu_ns as fn(&Median) -> f64), ("the caller", Median::cost_ns)]
        {
            let (title, lsms_named) = (workload.title(), lsms.join(", "));
            let promise = format!("{title}, CPU time of {whose} over the best of {lsms_named}");
            promises.push(ratio(&promise, 1.0, rows.over(Case::cached(workload), &lsms, figure)));
        }
    }
    let mut add = |what: &str, bound, figure: fn(&Median) -> f64| {
        let measured = rows.over(Case::cached(Workload::Load), &["rocksdb"], figure);
        let promise = format!("{}, {what} over RocksDB", Workload::Load.title());
        promises.push(ratio(&promise, bound, measured));
    };
    add("CPU time of all threads", 0.7, cpu_ns);
    add("bytes written", 0.9, |row| row.figures.write_bytes);
    add("space", 1.0, |row| row.figures.space_bytes);
    for (threads, bound) in SYNCED {
        let case = synced(threads);
        let promise = format!("{case}, real time over the best of {}", others.join(", "));
        promises.push(ratio(&promise, bound, rows.cost_over(case, &others)));
    }
    promises.into_iter().map(|promise| Promise { topic: Topic::Writes, ..promise }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        contestant::Contestant,
        figures::tests::all,
        report::{medians, tests::measurement},
    };

    #[test]
    fn the_best_of_the_others_counts() {
        let contestants = Topic::Writes.contestants();
        let rocksdb = usize::from(named("rocksdb").is_some());
        if contestants.len() < 3 {
            return;
        }
        // All figures of the best are this one, of the others 30, of SieveDB 9.
        for (best, want) in [(13.0, 11), (9.0, 9), (8.9, 0)] {
            let mut measurements = Vec::new();
            for case in Topic::Writes.cases(2) {
                measurements.extend(contestants.iter().map(|&contestant| {
                    let figure = match contestant {
                        Contestant::Sievedb => 9.0,
                        other if Some(other) == named("fjall") => best,
                        _ => 30.0,
                    };
                    measurement(contestant, case, 0, all(figure))
                }));
            }
            let promises = look(Rows(&medians(&measurements)));
            let held = promises.iter().filter(|one| one.holds == Some(true)).count();
            // Three are over RocksDB alone, whose figures are 30.
            assert_eq!((promises.len(), held), (14, want + 3 * rocksdb), "{promises:?}");
        }
    }
}
