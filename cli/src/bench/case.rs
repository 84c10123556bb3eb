//! One case of the benchmark: a store with or without filters, and with a small or a large cache,
//! asked for absent or present keys.

use std::fmt;

use serde::Serialize;

use super::{
    levels::{Counters, Level, false_positives_expected, total},
    lookups::{Answers, Times},
};

/// Fewest sorted runs, level 0 included, that say something about a tree.
pub(crate) const RUNS_MIN: u64 = 3;

/// Which filters the tables of a store have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filters {
    Off,
    /// Blocked Bloom filters, the same bits per key everywhere.
    Bloom,
    /// Ribbons, the same bits per key everywhere.
    Ribbon,
    /// The default of the engine.
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

    /// Name of the store's folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Bloom => "bloom",
            Self::Ribbon => "ribbon",
            Self::Auto => "auto",
        }
    }
}

/// Which keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Absent,
    Present,
}

impl Asked {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent keys",
            Self::Present => "present keys",
        }
    }
}

/// What the block cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cache {
    /// A part of the blocks: the data exceeds it.
    Part,
    /// Every block, from before the first lookup.
    All,
    /// None at first, and the page cache of the operating system has none either.
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

/// What tells a case from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) filters: Filters,
    pub(crate) cache: Cache,
    pub(crate) asked: Asked,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.filters.name(), self.cache.name(), self.asked.name())
    }
}

/// Reads of table files, counted where they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Reads {
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
}

/// What was measured in one case, all rounds together.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) answers: Answers,
    /// Lookups as the store counted them.
    pub(crate) gets: u64,
    pub(crate) levels: Vec<Level>,
    pub(crate) reads: Reads,
    pub(crate) times: Times,
}

impl Case {
    pub(crate) fn counters(&self) -> Counters {
        total(&self.levels)
    }

    /// `count` over lookups.
    pub(crate) fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.answers.lookups as f64
    }

    /// Share of the candidate tables that their filters skipped, from 0 to 1.
    pub(crate) fn skipped(&self) -> Option<f64> {
        let counters = self.counters();
        let asked = self.kind.filters != Filters::Off && counters.candidates > 0;
        asked.then(|| counters.negatives as f64 / counters.candidates as f64)
    }

    /// False positives over filters asked for keys that their tables do not hold, measured and
    /// expected, from 0 to 1.
    pub(crate) fn false_positive_rates(&self) -> Option<(f64, f64)> {
        let (asked, expected) = false_positives_expected(&self.levels)?;
        Some((self.counters().false_positives as f64 / asked as f64, expected))
    }

    /// Everything that is wrong with the answers and counters; empty if all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let more = self.wrong_filters().into_iter().chain(self.wrong_rate());
        let more = more.map(|fault| format!("{}: {fault}", self.kind));
        self.count_faults().into_iter().chain(more).collect()
    }

    /// The same where only some runs have filters, or none has: what a level expects is not what
    /// its runs do.
    pub(crate) fn count_faults(&self) -> Vec<String> {
        let faults = self.wrong_answers().into_iter().chain(self.wrong_counters());
        faults.map(|fault| format!("{}: {fault}", self.kind)).collect()
    }

    fn wrong_answers(&self) -> Option<String> {
        let Answers { lookups, lost, invented, changed, first_wrong } = &self.answers;
        let key = first_wrong.as_ref()?.escape_ascii();
        Some(format!(
            "of {lookups} lookups, {lost} lost a key, {invented} invented one, {changed} found \
             another value; the first wrong key is \"{key}\""
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
        let found = if self.kind.asked == Asked::Present { lookups } else { 0 };
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
                format!("{} times a filter could not be used", counters.filter_unusable),
            ),
            (
                counters.true_positives == found,
                format!("{} tables held a key, not {found}", counters.true_positives),
            ),
            // Keys have one version each, so a search ends in the first data block it looks at;
            // it needs none if the key lies behind the last separator.
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
            // Nobody but the lookups reads tables meanwhile.
            (
                (self.reads.calls, self.reads.bytes) == (counters.blocks_read, counters.bytes_read),
                format!(
                    "{} bytes in {} blocks were read, but {} bytes in {} calls",
                    counters.bytes_read, counters.blocks_read, self.reads.bytes, self.reads.calls
                ),
            ),
            (
                self.kind.cache != Cache::All || self.reads.calls == 0,
                format!("{} reads, though the cache holds everything", self.reads.calls),
            ),
        ];
        rows.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
    }

    /// A filter that says "maybe" much more, or less, often than its formula works on other bits
    /// than it thinks.
    fn wrong_rate(&self) -> Option<String> {
        let (asked, expected) = false_positives_expected(&self.levels)?;
        let (measured, _) = self.false_positive_rates()?;
        // Five deviations of a binomial rate, and a tenth for what the formula leaves out.
        let deviation = (expected * (1.0 - expected) / asked as f64).sqrt();
        let allowed = 5.0 * deviation + expected / 10.0;
        ((measured - expected).abs() > allowed)
            .then(|| format!("false-positive rate is {measured:.5}, expected {expected:.5}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 lookups over three runs with filters at 1 %.
    fn good(asked: Asked) -> Case {
        let found = if asked == Asked::Present { 1000 } else { 0 };
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
            kind: Kind { filters: Filters::Bloom, cache: Cache::Part, asked },
            answers: Answers { lookups: 1000, ..Answers::default() },
            gets: 1000,
            reads: Reads { calls: counters.blocks_read, bytes: counters.bytes_read },
            levels: vec![level],
            times: Times { p50_ns: 200, p99_ns: 300, cpu_ns: 150.0, ..Times::default() },
        }
    }

    #[test]
    fn a_good_case_has_no_faults() {
        for asked in [Asked::Absent, Asked::Present] {
            assert_eq!(good(asked).faults(), Vec::<String>::new());
        }
        assert_eq!(good(Asked::Absent).skipped(), Some(0.99));
        assert_eq!(good(Asked::Absent).false_positive_rates(), Some((0.01, 0.01)));
    }

    #[test]
    fn each_fault_is_named() {
        type Damage = fn(&mut Case);
        let cases: [(&str, Damage, &str); 15] = [
            ("lost", |c| c.answers.first_wrong = Some(b"k\0".to_vec()), "key is \"k\\x00\""),
            ("few runs", |c| c.levels[0].runs = 2, "2 sorted runs"),
            ("gets", |c| c.gets = 999, "999 gets"),
            ("candidates", |c| c.levels[0].counters.candidates = 2999, "2999 candidate tables"),
            ("unusable", |c| c.levels[0].counters.filter_unusable = 1, "1 times a filter"),
            ("filters", |c| c.kind.filters = Filters::Off, "the filters have 4096 bytes"),
            ("no filters", |c| c.levels[0].filter_memory_bytes = 0, "the filters have 0 bytes"),
            ("asked", |c| c.kind.asked = Asked::Present, "0 tables held a key, not 1000"),
            ("data", |c| c.levels[0].counters.data_block_requests = 31, "31 data-block requests"),
            ("blocks", |c| c.levels[0].counters.blocks_read = 61, "61 blocks read for 60"),
            ("calls", |c| c.reads.calls = 39, "in 39 calls"),
            ("cached", |c| c.kind.cache = Cache::All, "40 reads, though"),
            ("bytes", |c| c.reads.bytes = 1, "but 1 bytes"),
            ("above", |c| c.levels[0].false_positive_rate_expected = 0.003, "expected 0.00300"),
            ("below", |c| c.levels[0].false_positive_rate_expected = 0.03, "expected 0.03000"),
        ];
        for (name, damage, want) in cases {
            let mut case = good(Asked::Absent);
            damage(&mut case);
            let faults = case.faults().join("\n");
            assert!(faults.contains(want), "{name}: {faults}");
        }
    }
}
