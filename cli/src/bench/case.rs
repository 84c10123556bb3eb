//! A case of `sieve bench misses`: a kind of filters, a block cache, absent or present keys.

use std::fmt;

use serde::Serialize;

use super::{
    chance::{is_above, is_below},
    levels::{Counters, Level, false_positives_expected, total},
    lookups::{Answers, Times},
};

/// Minimum number of sorted runs, level 0 included, for a meaningful result.
pub(crate) const RUNS_MIN: u64 = 3;

/// Filters of the tables of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filters {
    Off,
    /// Blocked Bloom filters, the same bits per key everywhere.
    Bloom,
    /// Ribbons, the same bits per key everywhere.
    Ribbon,
    /// Planned by the engine, its default.
    Auto,
}

impl Filters {
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::Bloom, Self::Ribbon, Self::Auto];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "filters off",
            Self::Bloom => "uniform Bloom",
            Self::Ribbon => "uniform Ribbon",
            Self::Auto => "Auto",
        }
    }

    /// Name of the store's directory.
    pub(crate) fn dir_name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Bloom => "bloom",
            Self::Ribbon => "ribbon",
            Self::Auto => "auto",
        }
    }
}

/// Keys that are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Absent,
    Present,
}

impl KeyKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent keys",
            Self::Present => "present keys",
        }
    }
}

/// Contents of the block cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cache {
    /// A part of the blocks: the data exceeds it.
    Part,
    /// Every block, from before the first lookup.
    All,
    /// No block at first; the page cache of the operating system is empty too.
    Cold,
}

impl Cache {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Part => "part in cache",
            Self::All => "all in cache",
            Self::Cold => "cold",
        }
    }
}

/// Parameters of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) filters: Filters,
    pub(crate) cache: Cache,
    pub(crate) key_kind: KeyKind,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.filters.name(), self.cache.name(), self.key_kind.name())
    }
}

/// Physical reads of table files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Reads {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

/// Measurements of a case over all rounds.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) answers: Answers,
    /// Lookups that the store counted.
    pub(crate) gets: u64,
    pub(crate) levels: Vec<Level>,
    pub(crate) reads: Reads,
    pub(crate) times: Times,
}

impl Case {
    pub(crate) fn counters(&self) -> Counters {
        total(&self.levels)
    }

    /// Divides `count` by the number of lookups.
    pub(crate) fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.answers.lookups as f64
    }

    /// Share of candidate tables that their filters skipped, from 0 to 1.
    pub(crate) fn skipped(&self) -> Option<f64> {
        let counters = self.counters();
        let has_probes = self.kind.filters != Filters::Off && counters.candidates > 0;
        has_probes.then(|| counters.negatives as f64 / counters.candidates as f64)
    }

    /// False-positive rate, measured and expected, from 0 to 1.
    pub(crate) fn false_positive_rates(&self) -> Option<(f64, f64)> {
        let (probes, expected) = false_positives_expected(&self.levels)?;
        Some((self.counters().false_positives as f64 / probes as f64, expected))
    }

    /// Returns all wrong answers, counters and rates.
    pub(crate) fn faults(&self) -> Vec<String> {
        let more = self.wrong_filters().into_iter().chain(self.wrong_rate());
        let more = more.map(|fault| format!("{}: {fault}", self.kind));
        self.count_faults().into_iter().chain(more).collect()
    }

    /// Returns wrong answers and counters only, for a store in which not all runs have filters:
    /// there the expected rate of a level does not hold.
    pub(crate) fn count_faults(&self) -> Vec<String> {
        let faults = self.wrong_answers().into_iter().chain(self.wrong_counters());
        faults.map(|fault| format!("{}: {fault}", self.kind)).collect()
    }

    fn wrong_answers(&self) -> Option<String> {
        let Answers { lookups, lost, invented, changed, first_wrong } = &self.answers;
        let key = first_wrong.as_ref()?.escape_ascii();
        Some(format!(
            "of {lookups} lookups, {lost} missed a present key, {invented} found an absent key and \
             {changed} returned a wrong value; the first wrong key is \"{key}\""
        ))
    }

    fn wrong_filters(&self) -> Option<String> {
        let bytes: u64 = self.levels.iter().map(|level| level.filter_memory_bytes).sum();
        let is_right = (bytes > 0) == (self.kind.filters != Filters::Off);
        (!is_right).then(|| format!("the filters have {bytes} bytes"))
    }

    fn wrong_counters(&self) -> Vec<String> {
        let counters = self.counters();
        let lookups = self.answers.lookups;
        let runs: u64 = self.levels.iter().map(|level| level.runs).sum();
        let found = if self.kind.key_kind == KeyKind::Present { lookups } else { 0 };
        let requests = counters.data_block_requests + counters.index_block_requests;
        let searched = counters.searched();
        let rows = [
            (runs >= RUNS_MIN, format!("{runs} sorted runs are fewer than {RUNS_MIN}")),
            (self.gets == lookups, format!("{} gets counted for {lookups} lookups", self.gets)),
            (
                counters.candidates == counters.negatives + searched,
                format!(
                    "{} candidate tables are not {} skipped and {searched} searched",
                    counters.candidates, counters.negatives
                ),
            ),
            (
                counters.filter_unusable == 0,
                format!("{} probes of unusable filters", counters.filter_unusable),
            ),
            (
                counters.true_positives == found,
                format!("{} true positives, expected {found}", counters.true_positives),
            ),
            // Each key has one version, so a search reads at most one data block; none if the key
            // is after the last separator.
            (
                (found..=searched).contains(&counters.data_block_requests),
                format!(
                    "{} data-block requests for {searched} searches",
                    counters.data_block_requests
                ),
            ),
            (
                counters.blocks_read <= requests,
                format!("{} blocks read for {requests} requests", counters.blocks_read),
            ),
            // Only the lookups read tables.
            (
                (self.reads.calls, self.reads.bytes) == (counters.blocks_read, counters.bytes_read),
                format!(
                    "{} bytes in {} blocks were counted, but {} bytes read in {} calls",
                    counters.bytes_read, counters.blocks_read, self.reads.bytes, self.reads.calls
                ),
            ),
            (
                self.kind.cache != Cache::All || self.reads.calls == 0,
                format!("{} reads although everything is in the cache", self.reads.calls),
            ),
        ];
        rows.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }

    /// A false-positive rate far from its formula means that probes test the wrong bits.
    fn wrong_rate(&self) -> Option<String> {
        let (probes, expected) = false_positives_expected(&self.levels)?;
        let (measured, _) = self.false_positive_rates()?;
        // 10 % for the formula's simplifications.
        let (count, mean) = (self.counters().false_positives, expected * probes as f64);
        (is_above(count, 1.1 * mean) || is_below(count, 0.9 * mean))
            .then(|| format!("false-positive rate is {measured:.5}, expected {expected:.5}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 lookups over three runs with filters at 1 %.
    fn good(key_kind: KeyKind) -> Case {
        let found = if key_kind == KeyKind::Present { 1000 } else { 0 };
        let counters = Counters {
            candidates: 3000,
            filter_unusable: 0,
            negatives: 2970 - found,
            true_positives: found,
            false_positives: 30,
            data_block_requests: found + 30,
            index_block_requests: found + 30,
            blocks_read: found + 40,
            bytes_read: 4096 * (found + 40),
        };
        let level = Level {
            runs: 3,
            tables: 3,
            filter_memory_bytes: 4096,
            counters,
            false_positive_rate_expected: 0.01,
            ..Level::default()
        };
        Case {
            kind: Kind { filters: Filters::Bloom, cache: Cache::Part, key_kind },
            answers: Answers { lookups: 1000, ..Answers::default() },
            gets: 1000,
            reads: Reads { calls: counters.blocks_read, bytes: counters.bytes_read },
            levels: vec![level],
            times: Times { p50_ns: 200, p99_ns: 300, cpu_ns: 150.0, ..Times::default() },
        }
    }

    #[test]
    fn correct_case_has_no_faults() {
        for key_kind in [KeyKind::Absent, KeyKind::Present] {
            assert_eq!(good(key_kind).faults(), Vec::<String>::new());
        }
        assert_eq!(good(KeyKind::Absent).skipped(), Some(0.99));
        assert_eq!(good(KeyKind::Absent).false_positive_rates(), Some((0.01, 0.01)));
    }

    #[test]
    fn every_fault_is_reported() {
        type Damage = fn(&mut Case);
        let cases: [(&str, Damage, &str); 15] = [
            ("lost", |c| c.answers.first_wrong = Some(b"k\0".to_vec()), "key is \"k\\x00\""),
            ("few runs", |c| c.levels[0].runs = 2, "2 sorted runs"),
            ("gets", |c| c.gets = 999, "999 gets"),
            ("candidates", |c| c.levels[0].counters.candidates = 2999, "2999 candidate tables"),
            ("unusable", |c| c.levels[0].counters.filter_unusable = 1, "1 probes of unusable"),
            ("filters", |c| c.kind.filters = Filters::Off, "the filters have 4096 bytes"),
            ("no filters", |c| c.levels[0].filter_memory_bytes = 0, "the filters have 0 bytes"),
            ("key kind", |c| c.kind.key_kind = KeyKind::Present, "0 true positives, expected 1000"),
            ("data", |c| c.levels[0].counters.data_block_requests = 31, "31 data-block requests"),
            ("blocks", |c| c.levels[0].counters.blocks_read = 61, "61 blocks read for 60"),
            ("calls", |c| c.reads.calls = 39, "in 39 calls"),
            ("cached", |c| c.kind.cache = Cache::All, "40 reads although"),
            ("bytes", |c| c.reads.bytes = 1, "but 1 bytes read"),
            ("above", |c| c.levels[0].false_positive_rate_expected = 0.002, "expected 0.00200"),
            ("below", |c| c.levels[0].false_positive_rate_expected = 0.03, "expected 0.03000"),
        ];
        for (name, damage, want) in cases {
            let mut case = good(KeyKind::Absent);
            damage(&mut case);
            let faults = case.faults().join("\n");
            assert!(faults.contains(want), "{name}: {faults}");
        }
    }
}
