//! `sieve bench misses`: what a lookup of an absent key costs, with filters and without.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use sievedb::Db;
use tempfile::TempDir;

use crate::{
    bench::{
        case::{Asked, Case, Filters, Reads},
        fill::{Filling, KEYS_MIN, data_bytes},
        levels::{levels, since},
        lookups::{Answers, Expected, RoundKeys, median, round},
        report::{Report, Setup, Store},
        time::now,
    },
    error::{Error, Result},
    workload::{KeySet, KeySource, Keys, VALUE_BYTES},
};

/// Keys to store, unless the command line or a file says how many.
const KEYS_COUNT: u64 = 2_000_000;

/// Looks absent and present keys up, with filters off and with blocked Bloom filters.
///
/// Fills two stores with the same keys, which are removed at the end, reopens them, and prints
/// one table. Checks every answer and the store's counters; fails if anything is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys: `iin` (12-digit identification numbers), `urls`, or a file with one key a line, of
    /// which one half is stored and the other half asked for.
    #[arg(long, value_name = "iin|urls|FILE", default_value_t = KeySource::Iin)]
    keys: KeySource,
    /// Number of keys to store [default: 2000000, or all that a file has].
    #[arg(long, value_name = "COUNT")]
    keys_count: Option<u64>,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Filter bits for each key, above 0 up to 40.
    #[arg(long, value_name = "BITS", default_value_t = 10.0, value_parser = bits_per_key)]
    bits_per_key: f64,
    /// Block cache, in per cent of the tables.
    #[arg(long, value_name = "PERCENT", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(0..=100))]
    cache_percent: u64,
    /// Lookups of a round, fewer if there are not enough keys.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    lookups: u64,
    /// Rounds to measure, after one to warm up.
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Folder for the temporary stores [default: that of the system].
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn bits_per_key(text: &str) -> Result<f64, String> {
    let bits = text.parse::<f64>().map_err(|error| error.to_string())?;
    let in_range = bits > 0.0 && bits <= 40.0;
    in_range.then_some(bits).ok_or_else(|| format!("{bits} is not above 0 and up to 40"))
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let report = self.measure(&self.key_set()?)?;
        if self.json {
            let json = serde_json::to_string_pretty(&report).expect("a report becomes JSON");
            writeln!(out, "{json}")?;
        } else {
            write!(out, "{}", report.table())?;
            for fault in &report.faults {
                writeln!(out, "WRONG: {fault}")?;
            }
        }
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
        let filling = Filling {
            keys: &set.stored,
            data_bytes,
            seed: self.seed,
            bits_per_key: self.bits_per_key,
        };
        let folder = self.temporary_folder()?;
        let (mut stores, mut cases) = (Vec::new(), Vec::new());
        for (filters, name) in [(Filters::Off, "off"), (Filters::BlockedBloom, "blocked-bloom")] {
            let path = folder.path().join(name);
            let start = now();
            let table_bytes = filling.fill(&path, filters)?;
            let fill_seconds = start.elapsed().as_secs_f64();

            let cache_bytes = table_bytes / 100 * self.cache_percent;
            let db = filling.options(filters).block_cache_bytes(cache_bytes).open(&path)?;
            stores.push(Store::new(filters, fill_seconds, cache_bytes, levels(&db.stats())));
            for (asked, keys) in [(Asked::Absent, &set.absent), (Asked::Present, &set.stored)] {
                cases.push(self.case(&db, keys, lookups, filters, asked)?);
            }
        }
        cases.sort_by_key(|case| case.asked != Asked::Absent);

        let setup = Setup {
            keys: self.keys.to_string(),
            seed: self.seed,
            stored,
            value_bytes: VALUE_BYTES as u64,
            data_bytes,
            bits_per_key: self.bits_per_key,
            cache_percent: self.cache_percent,
            rounds: self.rounds,
            lookups_per_round: lookups,
        };
        Ok(Report::new(setup, stores, &cases))
    }

    /// Looks `keys` up in rounds of `lookups`; none twice, so that no round finds in the cache
    /// what the one before has read.
    fn case(
        &self,
        db: &Db,
        keys: &Keys,
        lookups: u64,
        filters: Filters,
        asked: Asked,
    ) -> Result<Case> {
        let expected = match asked {
            Asked::Absent => Expected::Absent,
            Asked::Present => Expected::Present { seed: self.seed },
        };
        let mut numbers = keys.shuffled(self.seed);
        let count = usize::try_from(lookups).unwrap_or(usize::MAX);
        let mut next_round = |answers: &mut Answers| {
            let keys = RoundKeys::new(keys, numbers.by_ref().take(count));
            round(&keys, expected, answers, |key| db.get(key))
        };

        let mut answers = Answers::default();
        next_round(&mut answers)?;
        // A wrong answer counts in the warm-up too.
        answers.lookups = 0;
        let before = db.stats();
        let rounds: Vec<_> =
            (0..self.rounds).map(|_| next_round(&mut answers)).collect::<Result<_, _>>()?;
        let after = db.stats();
        Ok(Case {
            filters,
            asked,
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

    fn temporary_folder(&self) -> Result<TempDir> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new().prefix("sieve-bench-").tempdir_in(&parent);
        folder.map_err(|source| Error::Io { op: "create a folder in", path: parent, source })
    }
}

/// Reads a file that is no file of a store.
#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| Error::Io { op: "read", path: path.to_owned(), source })
}
