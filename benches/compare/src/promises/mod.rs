//! Promises of SieveDB relative to other engines, and their checks.

mod memory;
mod writes;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{
    case::{Case, Fit, Workload},
    contestant::Contestant,
    report::{Median, head, line, time},
    workload::{DATA_BLOCK_REQUESTS, TOMBSTONES, scale::THREADS_OVER_PROCESSES},
};

/// Measurements of a run of promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Topic {
    /// SieveDB beside the other engines, with everything in memory.
    Engines,
    /// The same total memory for each, for all of the data and for parts of them.
    Memory,
    /// Writes one by one, in batches and synced, with the same total memory for each.
    Writes,
}

impl Topic {
    /// Returns the compiled contestants that the promises name.
    pub(crate) fn contestants(self) -> Vec<Contestant> {
        let names = match self {
            Self::Engines => &CONTESTANTS[..],
            Self::Memory => &memory::CONTESTANTS,
            Self::Writes => &writes::CONTESTANTS,
        };
        names.iter().filter_map(|name| named(name)).collect()
    }

    /// Returns the cases of the promises on a machine with `cores` cores.
    pub(crate) fn cases(self, cores: usize) -> Vec<Case> {
        match self {
            Self::Engines => {
                let mut cases = Case::all(&CACHED, &[Fit::Cached], cores);
                cases.push(Case { fit: Fit::TenTimes, ..Case::cached(Workload::Hit) });
                cases
            }
            Self::Memory => memory::cases(cores),
            Self::Writes => writes::cases(cores),
        }
    }

    /// Returns the seconds after which a workload other than a load ends.
    pub(crate) const fn seconds(self) -> f64 {
        match self {
            Self::Engines | Self::Memory => 1.0,
            // Each engine fills several memtables, so that their flushes count.
            Self::Writes => 5.0,
        }
    }
}

/// The contestants that the promises name, and redb.
const CONTESTANTS: [&str; 5] = ["sievedb", "rocksdb", "fjall", "redb", "lmdb"];

/// The workloads that the promises need with everything in the cache.
const CACHED: [Workload; 11] = [
    Workload::Load,
    Workload::Open,
    Workload::Hit,
    Workload::Miss,
    Workload::Contains,
    Workload::Scan,
    Workload::ScanBack,
    Workload::ShortScan,
    Workload::Tombstones,
    Workload::ScaleHit,
    Workload::ScaleMiss,
];

/// Keys that are removed before the scan over tombstones.
pub(crate) const TOMBSTONES_ASKED: u64 = 1_000_000;

/// One in 100 of these keys.
const TOMBSTONES_LEFT_MAX: f64 = 10_000.0;

/// A promise and its result in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Promise {
    pub(crate) topic: Topic,
    pub(crate) promise: String,
    /// The bound, in words.
    pub(crate) asked: String,
    /// The bound as a number.
    pub(crate) bound: f64,
    /// The figure, if measured.
    pub(crate) value: Option<f64>,
    /// The figure in words, if measured.
    pub(crate) measured: Option<String>,
    pub(crate) holds: Option<bool>,
}

/// Returns the contestant with this name on the command line, if it was compiled.
fn named(name: &str) -> Option<Contestant> {
    Contestant::from_str(name, false).ok()
}

/// Format of a figure.
#[derive(Debug, Clone, Copy)]
enum Unit {
    /// A ratio, with this number of decimals.
    Ratio(usize),
    Ns,
}

impl Unit {
    fn text(self, figure: f64) -> String {
        match self {
            Self::Ratio(decimals) => format!("{figure:.decimals$}"),
            Self::Ns => time(figure),
        }
    }
}

/// Returns a promise with an upper bound.
fn at_most(promise: &str, bound: f64, unit: Unit, measured: Option<f64>) -> Promise {
    Promise {
        topic: Topic::Engines,
        promise: promise.to_owned(),
        asked: format!("at most {}", unit.text(bound)),
        bound,
        value: measured,
        measured: measured.map(|figure| unit.text(figure)),
        holds: measured.map(|figure| figure <= bound),
    }
}

/// Evaluates the promises of `topic`, or of all topics, by the medians. `tombstones` keys were
/// removed before the scan over them.
pub(crate) fn look(topic: Option<Topic>, medians: &[Median], tombstones: u64) -> Vec<Promise> {
    let mut promises = look_at_all(medians, tombstones);
    promises.retain(|promise| topic.is_none_or(|topic| promise.topic == topic));
    promises
}

fn look_at_all(medians: &[Median], tombstones: u64) -> Vec<Promise> {
    let rows = Rows(medians);
    let cached = Case::cached;
    let (lsm, lmdb) = (["rocksdb", "fjall"], ["lmdb"]);
    let at_least = |promise: &str, bound: f64, measured: Option<f64>| Promise {
        topic: Topic::Engines,
        promise: promise.to_owned(),
        asked: format!("at least {bound}"),
        bound,
        value: measured,
        measured: measured.map(|figure| Unit::Ratio(2).text(figure)),
        holds: measured.map(|figure| figure >= bound),
    };
    let ratio = |promise: &str, bound: f64, measured: Option<f64>| {
        at_most(promise, bound, Unit::Ratio(2), measured)
    };

    let hit = |of: &[&str]| rows.cost_over(cached(Workload::Hit), of);
    let scan = |of: &[&str]| rows.cost_over(cached(Workload::Scan), of);
    let back = rows.ours(cached(Workload::ScanBack)).map(Median::cost_ns);
    let forth = rows.ours(cached(Workload::Scan)).map(Median::cost_ns);
    let ten_times = Case { fit: Fit::TenTimes, ..cached(Workload::Hit) };
    let requests = rows.ours(ten_times).and_then(|row| more(row, DATA_BLOCK_REQUESTS));
    let scanned =
        rows.ours(cached(Workload::Tombstones)).filter(|_| tombstones == TOMBSTONES_ASKED);
    let mut promises = vec![
        ratio("Hit, CPU time over that of RocksDB", 0.5, hit(&["rocksdb"])),
        ratio("Hit, over fjall", 0.5, hit(&["fjall"])),
        ratio("Hit, over LMDB", 1.3, hit(&lmdb)),
        ratio("Full scan, over the better of RocksDB and fjall", 0.6, scan(&lsm)),
        ratio("Full scan, over LMDB", 2.0, scan(&lmdb)),
        ratio("Full scan descending, over ascending", 1.15, quotient(back, forth)),
        ratio(
            "Short scan, over the better of RocksDB and fjall",
            0.5,
            rows.cost_over(cached(Workload::ShortScan), &lsm),
        ),
        at_most(
            "Data 10 times the memory: data-block requests per hit beyond the one of the value",
            0.01,
            Unit::Ratio(4),
            requests.map(|requests| requests - 1.0),
        ),
        ratio(
            "Data 10 times the memory: bytes read per hit, over RocksDB",
            1.0,
            rows.over(ten_times, &["rocksdb"], |row| row.figures.read_bytes),
        ),
        ratio(
            "Space after the load, over RocksDB with LZ4",
            1.0,
            rows.over(cached(Workload::Load), &["rocksdb"], |row| row.figures.space_bytes),
        ),
        ratio(
            "Open, real time over that of RocksDB",
            1.0,
            rows.cost_over(cached(Workload::Open), &["rocksdb"]),
        ),
        at_most(
            "Scan over 1,000,000 tombstones and one live key",
            0.3e9,
            Unit::Ns,
            scanned.map(|row| row.figures.ns),
        ),
        at_most(
            "Tombstones of them that are left when the background rests",
            TOMBSTONES_LEFT_MAX,
            Unit::Ratio(0),
            scanned.and_then(|row| more(row, TOMBSTONES)),
        ),
    ];
    for (workload, what) in [(Workload::ScaleHit, "Hits"), (Workload::ScaleMiss, "Misses")] {
        for row in rows.all_ours().filter(|row| row.case.workload == workload) {
            let threads = row.case.threads;
            let promise = format!("{what} by {threads} threads, over {threads} processes");
            promises.push(at_least(&promise, 0.9, more(row, THREADS_OVER_PROCESSES)));
        }
    }
    let miss = cached(Workload::Miss);
    let miss_over = rows.cost_over(miss, &lsm).map(|ratio| 1.0 / ratio);
    promises.extend([
        at_least("Miss: the better of RocksDB and fjall over SieveDB", 3.0, miss_over),
        at_most("Miss, CPU time", 250.0, Unit::Ns, rows.ours(miss).map(Median::cost_ns)),
        at_most(
            "Contains, in batches, CPU time per absent key",
            100.0,
            Unit::Ns,
            rows.ours(cached(Workload::Contains)).map(Median::cost_ns),
        ),
    ]);
    promises.extend(memory::look(rows));
    promises.extend(writes::look(rows));
    promises
}

fn more(row: &Median, name: &str) -> Option<f64> {
    row.figures.more.get(name).copied()
}

fn quotient(one: Option<f64>, two: Option<f64>) -> Option<f64> {
    Some(one? / two?)
}

/// The medians, by contestant and case.
#[derive(Debug, Clone, Copy)]
struct Rows<'a>(&'a [Median]);

impl<'a> Rows<'a> {
    fn of(self, contestant: Contestant, case: Case) -> Option<&'a Median> {
        self.0.iter().find(|row| row.contestant == contestant && row.case == case)
    }

    fn ours(self, case: Case) -> Option<&'a Median> {
        self.of(Contestant::Sievedb, case)
    }

    /// Returns SieveDB's rows of all cases.
    fn all_ours(self) -> impl Iterator<Item = &'a Median> {
        self.0.iter().filter(|row| row.contestant == Contestant::Sievedb)
    }

    /// Returns SieveDB's figure over the least of `others`. Requires figures of all `others`.
    fn over(self, case: Case, others: &[&str], figure: fn(&Median) -> f64) -> Option<f64> {
        let others = others.iter().map(|name| Some(figure(self.of(named(name)?, case)?)));
        let others: Vec<f64> = others.collect::<Option<_>>()?;
        quotient(self.ours(case).map(figure), others.into_iter().min_by(f64::total_cmp))
    }

    fn cost_over(self, case: Case, others: &[&str]) -> Option<f64> {
        self.over(case, others, Median::cost_ns)
    }
}

/// Returns the table of all promises if there is a topic, else of the measured ones. Empty if there
/// is none.
pub(crate) fn table(topic: Option<Topic>, promises: &[Promise]) -> String {
    let is_told = |one: &&Promise| topic.is_some() || one.holds.is_some();
    let told: Vec<&Promise> = promises.iter().filter(is_told).collect();
    if told.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n**Promises**\n\n");
    let heads = ["promise", "asked", "measured", "holds"].map(str::to_owned);
    head(&mut text, &heads, 1..3);
    for Promise { promise, asked, measured, holds, .. } in told {
        let holds = if *holds == Some(true) { "yes" } else { "**no**" };
        let measured = measured.clone().unwrap_or_else(|| "not measured".to_owned());
        line(&mut text, &[promise.clone(), asked.clone(), measured, holds.to_owned()]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        figures::{Figures, tests::all},
        report::{medians, tests::measurement},
    };

    #[test]
    fn a_run_tells_what_it_has_measured() {
        let promises = look(None, &[], TOMBSTONES_ASKED);
        assert!(promises.iter().all(|one| one.holds.is_none()), "{promises:?}");
        assert_eq!(table(None, &promises), "");
        let of_memory = look(Some(Topic::Memory), &[], TOMBSTONES_ASKED);
        assert!(of_memory.len() < promises.len());
        assert!(table(Some(Topic::Memory), &of_memory).contains("not measured"));
    }

    #[test]
    fn promises_hold_up_to_their_bounds() {
        let figures = |ours: bool, factor: f64| {
            let more =
                [(DATA_BLOCK_REQUESTS, 1.0), (TOMBSTONES, 0.0), (THREADS_OVER_PROCESSES, 0.9)];
            let more = more.map(|(name, figure)| (name.to_owned(), figure));
            let figure = if ours { 10.0 } else { 10.0 * factor };
            Figures { more: more.into(), ..all(figure) }
        };
        // All others cost `factor` times as much. LMDB's bounds are above 1.
        for (factor, hit_holds) in [(1.9, false), (2.0, true), (3.1, true)] {
            let mut measurements = Vec::new();
            for case in Topic::Engines.cases(2) {
                measurements.extend(Topic::Engines.contestants().into_iter().map(|contestant| {
                    let figures = figures(contestant == Contestant::Sievedb, factor);
                    measurement(contestant, case, 0, figures)
                }));
            }
            let promises = look(None, &medians(&measurements), TOMBSTONES_ASKED);
            for Promise { promise, measured, holds, .. } in &promises {
                let what = format!("{promise}, {factor}: {measured:?}");
                if promise.starts_with("Hit, over fjall") && named("fjall").is_some() {
                    assert_eq!(*holds, Some(hit_holds), "{what}");
                }
                if factor > 3.0 {
                    assert_ne!(*holds, Some(false), "{what}");
                }
            }
            let lines =
                table(None, &promises).lines().filter(|line| line.starts_with("| ")).count();
            assert!(lines > 5, "{factor}");
        }
    }

    #[test]
    fn the_better_of_two_counts() {
        let (Some(rocksdb), Some(fjall)) = (named("rocksdb"), named("fjall")) else { return };
        let case = Case::cached(Workload::ShortScan);
        let rows = [(Contestant::Sievedb, 10.0), (rocksdb, 30.0), (fjall, 20.0)];
        let rows = rows.map(|(contestant, figure)| measurement(contestant, case, 0, all(figure)));
        let rows = medians(&rows);
        assert_eq!(Rows(&rows).cost_over(case, &["rocksdb", "fjall"]), Some(0.5));
        assert_eq!(Rows(&rows).cost_over(case, &["rocksdb", "lmdb"]), None);
    }
}
