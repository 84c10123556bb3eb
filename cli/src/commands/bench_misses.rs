//! `sieve bench misses`: cost of lookups of absent keys, with and without filters.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use sievedb::Db;
use sievedb_workload::{KeySet, KeySource, Keys, VALUE_BYTES, clock::now};

use crate::{
    bench::{
        case::{Cache, Case, Filters, KeyKind, Kind, Reads},
        cold::drop_page_cache,
        dir::BenchDir,
        fill::{Filling, KEYS_MIN, Shares, data_bytes, ideal, runs},
        levels::{levels, since},
        lookups::{Answers, Expected, RoundKeys, median, round},
        output::write_report,
        page, progress,
        report::{Report, Setup, Store},
        sweep::{self, Alternating, Step, wait_for_filters},
        threads::{ThreadFigures, concurrent_lookups, thread_counts},
    },
    error::{Error, Result},
};

/// Most cold lookups in a round: each may wait for the device.
const COLD_LOOKUPS_MAX: u64 = 1_000;

/// Default number of keys to store.
const KEYS_COUNT: u64 = 2_000_000;

/// Measures lookups of absent and present keys with four kinds of filters.
///
/// Fills a store for each kind with the same keys: no filters, uniform blocked Bloom filters,
/// uniform ribbons, and filters planned by the engine (Auto). Measures each store with a block
/// cache smaller than the data, with everything in the cache, and cold. Then measures the Auto
/// filters with several threads and with decreasing filter memory.
///
/// Checks every answer, the counters and the promised figures. Exits with 1 if any is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys: `iin` (12-digit identification numbers), `urls`, or a file with one key per line. Half
    /// of a file's keys are stored; the other half are the absent keys.
    #[arg(long, value_name = "iin|urls|FILE", default_value_t = KeySource::Iin)]
    keys: KeySource,
    /// Number of keys to store [default: 2000000, or half of the file].
    #[arg(long, value_name = "COUNT")]
    keys_count: Option<u64>,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shares of the keys in the sorted runs, oldest first: three or four numbers, such as 90,9,1
    /// [default: two small flushes, all other keys in one run].
    #[arg(long, value_name = "SHARES")]
    runs: Option<Shares>,
    /// Average filter bits per key, above 0 and at most 40.
    #[arg(long, value_name = "BITS", default_value_t = 10.0, value_parser = bits_per_key)]
    bits_per_key: f64,
    /// Size of the smaller block cache, in percent of the tables.
    #[arg(long, value_name = "PERCENT", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(0..=99))]
    cache_percent: u64,
    /// Lookups in a round; fewer if there are not enough keys.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    lookups: u64,
    /// Measured rounds, after a warm-up round.
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Fail if a filtered lookup of an absent key with everything in the cache takes more CPU time.
    #[arg(long, value_name = "NS")]
    miss_cpu_ns_max: Option<f64>,
    /// Directory for the stores, which are kept [default: a temporary directory].
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Directory for the file `misses.html` with plots.
    #[arg(long, value_name = "DIRECTORY")]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn bits_per_key(text: &str) -> Result<f64, String> {
    let bits = text.parse::<f64>().map_err(|error| error.to_string())?;
    let in_range = bits > 0.0 && bits <= 40.0;
    in_range.then_some(bits).ok_or_else(|| format!("{bits} is not above 0 and at most 40"))
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let report = self.measure(&self.key_set()?)?;
        if let Some(dir) = &self.report {
            let path = write(dir, "misses.html", &page::html(&report))?;
            // Standard output may be JSON, and standard error may be closed.
            let _ = writeln!(io::stderr(), "sieve: wrote {}", path.display());
        }
        write_report(out, &report, self.json, |report| {
            let faults = report.faults.iter().map(|fault| format!("WRONG: {fault}\n"));
            report.table() + &faults.collect::<String>() + "\n" + &report.verdict() + "\n"
        })?;
        match report.faults.len() {
            0 => Ok(()),
            count => Err(Error::Faults { count }),
        }
    }

    fn key_set(&self) -> Result<KeySet> {
        let stored = self.keys_count.unwrap_or(KEYS_COUNT);
        let absent = self.lookups * (self.rounds + 1);
        Ok(match &self.keys {
            KeySource::Iin => KeySet::iins(self.seed, stored, absent),
            KeySource::Urls => KeySet::urls(self.seed, stored, absent),
            KeySource::File(path) => {
                KeySet::lines(read(path)?, self.keys_count.unwrap_or(u64::MAX), absent)
            }
        })
    }

    fn measure(&self, set: &KeySet) -> Result<Report> {
        let (stored, absent) = (set.stored.len(), set.absent.len());
        let lookups = self.lookups.min(stored.min(absent) / (self.rounds + 1));
        if stored < KEYS_MIN || lookups == 0 {
            let need = KEYS_MIN.max(self.rounds + 1);
            return Err(Error::TooFewKeys { stored, absent, need });
        }
        let data_bytes = data_bytes(&set.stored);
        let runs = runs(stored, data_bytes, self.runs.as_ref());
        let filling = Filling {
            keys: &set.stored,
            data_bytes,
            seed: self.seed,
            bits_per_key: self.bits_per_key,
            runs: &runs,
        };
        let dir = BenchDir::new(self.dir.as_deref())?;
        let mut found = Found::default();
        for filters in Filters::ALL {
            let path = dir.store(filters.dir_name())?;
            let start = now();
            let table_bytes = filling.fill(&path, filters)?;
            let fill_seconds = start.elapsed().as_secs_f64();
            let options = |cache_bytes| filling.options(filters).block_cache_bytes(cache_bytes);
            let cache_bytes = table_bytes / 100 * self.cache_percent;
            for cache in [Cache::Part, Cache::All, Cache::Cold] {
                let all_bytes = 2 * (table_bytes + data_bytes);
                // Twice the data: blocks are larger in memory, and cache shards fill unevenly.
                let bytes = if cache == Cache::All { all_bytes } else { cache_bytes };
                let db = options(bytes).open(&path)?;
                match cache {
                    Cache::Part => {
                        let levels = levels(&db.stats());
                        found.stores.push(Store::new(filters, fill_seconds, cache_bytes, levels));
                    }
                    Cache::All => {
                        for entry in db.iter() {
                            entry?;
                        }
                    }
                    Cache::Cold => {
                        found.page_cache = drop_page_cache(&path);
                        let lookups = lookups.min(COLD_LOOKUPS_MAX);
                        let kind = Kind { filters, cache, key_kind: KeyKind::Absent };
                        found.cases.push(self.case(&db, &set.absent, lookups, kind)?);
                        continue;
                    }
                }
                for (key_kind, keys) in
                    [(KeyKind::Absent, &set.absent), (KeyKind::Present, &set.stored)]
                {
                    let kind = Kind { filters, cache, key_kind };
                    found.cases.push(self.case(&db, keys, lookups, kind)?);
                }
                if (filters, cache) == (Filters::Auto, Cache::All) {
                    self.measure_threads(&db, &set.absent, lookups, &mut found)?;
                    self.sweep(&db, &set.absent, lookups, &runs, &mut found)?;
                }
            }
        }
        found.cases.sort_by_key(|case| (case.kind.cache, case.kind.key_kind != KeyKind::Absent));

        let setup = Setup {
            keys: self.keys.to_string(),
            seed: self.seed,
            stored,
            value_bytes: VALUE_BYTES as u64,
            data_bytes,
            bits_per_key: self.bits_per_key,
            ideal_requests: ideal(&runs, self.bits_per_key),
            runs,
            cache_percent: self.cache_percent,
            rounds: self.rounds,
            lookups_per_round: lookups,
            miss_cpu_ns_max: self.miss_cpu_ns_max,
        };
        let Found { stores, cases, sweep, mut sweep_faults, threads, page_cache } = found;
        let unfiltered = cases.iter().find(|case| {
            let Kind { filters, cache, key_kind } = case.kind;
            (filters, cache, key_kind) == (Filters::Off, Cache::All, KeyKind::Absent)
        });
        let unfiltered = unfiltered.expect("it was measured first");
        sweep_faults.extend(sweep.iter().flat_map(|step| step.faults(unfiltered)));
        let mut report = Report::new(setup, stores, &cases);
        report.faults.append(&mut sweep_faults);
        Ok(Report { sweep, threads, page_cache, ..report })
    }

    /// Looks up absent keys with an increasing number of threads.
    fn measure_threads(&self, db: &Db, keys: &Keys, lookups: u64, found: &mut Found) -> Result<()> {
        let count = usize::try_from(lookups).unwrap_or(usize::MAX);
        let keys = RoundKeys::new(keys, keys.shuffled(self.seed).take(count));
        for threads in thread_counts() {
            found.threads.push(concurrent_lookups(db, &keys, threads)?);
        }
        Ok(())
    }

    /// Looks up absent keys with decreasing filter memory.
    fn sweep(
        &self,
        db: &Db,
        keys: &Keys,
        lookups: u64,
        runs: &[u64],
        found: &mut Found,
    ) -> Result<()> {
        let all_bytes = self.bits_per_key / 8.0 * runs.iter().sum::<u64>() as f64;
        for percent in sweep::PERCENTS {
            let bytes_max = (all_bytes * percent as f64 / 100.0) as u64;
            db.set_filter_bytes_max(bytes_max)?;
            let predicted = wait_for_filters(db)?;
            let kind =
                Kind { filters: Filters::Auto, cache: Cache::All, key_kind: KeyKind::Absent };
            let case = self.case(db, keys, lookups, kind)?;
            found.sweep.push(Step::new(percent, bytes_max, predicted, &case, runs));
            found.sweep_faults.extend(case.count_faults());
        }
        let is_timed = lookups >= sweep::LOOKUPS_TIMED;
        let last = found.sweep.last_mut().filter(|last| is_timed && last.filter_memory_bytes > 0);
        if let Some(last) = last {
            let mut faults = Vec::new();
            let turns = Alternating::measure(last.filter_bytes_max, |bytes_max| {
                db.set_filter_bytes_max(bytes_max)?;
                wait_for_filters(db)?;
                let kind =
                    Kind { filters: Filters::Auto, cache: Cache::All, key_kind: KeyKind::Absent };
                let case = self.case(db, keys, lookups, kind)?;
                faults.extend(case.count_faults());
                Ok::<_, Error>(case.times.cpu_ns)
            })?;
            found.sweep_faults.extend(faults);
            last.cpu_ns = turns.last_ns;
            last.cpu_ns_without = Some(turns.without_ns);
            found.sweep_faults.extend(turns.fault());
        }
        Ok(())
    }

    /// Looks up `keys` in rounds of `lookups`. Looks up no key twice, so no round hits blocks that
    /// an earlier round has cached.
    fn case(&self, db: &Db, keys: &Keys, lookups: u64, kind: Kind) -> Result<Case> {
        let progress = progress::bar(self.rounds + 1, "rounds", &kind.to_string());
        let expected = match kind.key_kind {
            KeyKind::Absent => Expected::Absent,
            KeyKind::Present => Expected::Present { seed: self.seed },
        };
        let mut numbers = keys.shuffled(self.seed);
        let count = usize::try_from(lookups).unwrap_or(usize::MAX);
        let mut next_round = |answers: &mut Answers| {
            let keys = RoundKeys::new(keys, numbers.by_ref().take(count));
            let times = round(&keys, expected, answers, |key| db.get(key));
            progress.inc(1);
            times
        };

        let mut answers = Answers::default();
        next_round(&mut answers)?;
        // Keeps wrong answers of the warm-up.
        answers.lookups = 0;
        let before = db.stats();
        let rounds: Vec<_> =
            (0..self.rounds).map(|_| next_round(&mut answers)).collect::<Result<_, _>>()?;
        let after = db.stats();
        progress.finish_and_clear();
        Ok(Case {
            kind,
            answers,
            gets: after.lookups.lookups - before.lookups.lookups,
            levels: since(&levels(&before), &levels(&after)),
            reads: Reads {
                calls: after.table_reads.calls - before.table_reads.calls,
                bytes: after.table_reads.bytes - before.table_reads.bytes,
            },
            times: median(&rounds),
        })
    }
}

/// Measurements so far.
#[derive(Debug, Default)]
struct Found {
    stores: Vec<Store>,
    cases: Vec<Case>,
    sweep: Vec<Step>,
    /// Wrong answers and counters of the sweep.
    sweep_faults: Vec<String>,
    threads: Vec<ThreadFigures>,
    page_cache: String,
}

/// Writes a file into `dir`, which is created if missing. Returns its path.
#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn write(dir: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    match fs::create_dir_all(dir).and_then(|()| fs::write(&path, text)) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::Io { op: "write", path, source }),
    }
}

/// Reads a file that is not a file of a store.
#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| Error::Io { op: "read", path: path.to_owned(), source })
}
