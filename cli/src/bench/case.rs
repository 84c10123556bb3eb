//! One case of the benchmark: a store with or without filters, asked for absent or present keys.

use super::{
    levels::{Counters, Level, false_positives_expected, total},
    lookups::{Answers, Times},
};

/// Fewest sorted runs, level 0 included, that say something about a tree.
pub(crate) const RUNS_MIN: u64 = 3;

/// Whether the tables of a store have filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filters {
    Off,
    BlockedBloom,
}

impl Filters {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "filters off",
            Self::BlockedBloom => "blocked Bloom",
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

/// What was measured in one case, all rounds together.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) filters: Filters,
    pub(crate) asked: Asked,
    pub(crate) answers: Answers,
    /// Lookups as the store counted them.
    pub(crate) gets: u64,
    pub(crate) levels: Vec<Level>,
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
        let filtered = counters.candidates.checked_sub(counters.unfiltered)?;
        (filtered > 0).then(|| counters.negatives as f64 / filtered as f64)
    }

    /// False positives over filters asked for keys that their tables do not hold, measured and
    /// expected, from 0 to 1.
    pub(crate) fn false_positive_rates(&self) -> Option<(f64, f64)> {
        let (asked, expected) = false_positives_expected(&self.levels)?;
        Some((self.counters().false_positives as f64 / asked as f64, expected))
    }

    /// Everything that is wrong with the answers and counters; empty if all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let faults = self.wrong_answers().into_iter().chain(self.wrong_counters());
        let case = format!("{}, {}", self.filters.name(), self.asked.name());
        faults.map(|fault| format!("{case}: {fault}")).collect()
    }

    fn wrong_answers(&self) -> Option<String> {
        let Answers { lookups, lost, invented, changed, first_wrong } = &self.answers;
        let key = first_wrong.as_ref()?.escape_ascii();
        Some(format!(
            "of {lookups} lookups, {lost} lost a key, {invented} invented one, {changed} found \
             another value; the first wrong key is \"{key}\""
        ))
    }

    fn wrong_counters(&self) -> Vec<String> {
        let counters = self.counters();
        let lookups = self.answers.lookups;
        let runs: u64 = self.levels.iter().map(|level| level.runs).sum();
        let found = if self.asked == Asked::Present { lookups } else { 0 };
        let requests = counters.data_block_requests + counters.index_block_requests;
        let searched = counters.searched();
        let unfiltered = if self.filters == Filters::Off { counters.candidates } else { 0 };
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
                counters.unfiltered == unfiltered,
                format!("{} tables without a filter, not {unfiltered}", counters.unfiltered),
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
                counters.physical_reads <= requests,
                format!("{} reads for {requests} block requests", counters.physical_reads),
            ),
            (
                counters.bytes_read >= counters.physical_reads,
                format!("{} bytes in {} reads", counters.bytes_read, counters.physical_reads),
            ),
        ];
        let wrong = rows.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault);
        wrong.chain(self.wrong_rate()).collect()
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
            unfiltered: 0,
            negatives: 2970 - found,
            true_positives: found,
            false_positives: 30,
            data_block_requests: found + 30,
            index_block_requests: found + 30,
            physical_reads: found + 40,
            bytes_read: 4096 * (found + 40),
        };
        let level = Level {
            runs: 3,
            tables: 3,
            counters,
            false_positive_rate_expected: 0.01,
            ..Level::default()
        };
        Case {
            filters: Filters::BlockedBloom,
            asked,
            answers: Answers { lookups: 1000, ..Answers::default() },
            gets: 1000,
            levels: vec![level],
            times: Times { p50_ns: 200, p99_ns: 300, cpu_ns: 150.0 },
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
        let cases: [(&str, Damage, &str); 12] = [
            ("lost", |c| c.answers.first_wrong = Some(b"k\0".to_vec()), "key is \"k\\x00\""),
            ("few runs", |c| c.levels[0].runs = 2, "2 sorted runs"),
            ("gets", |c| c.gets = 999, "999 gets"),
            ("candidates", |c| c.levels[0].counters.candidates = 2999, "2999 candidate tables"),
            ("unfiltered", |c| c.levels[0].counters.unfiltered = 1, "1 tables without a filter"),
            ("filters", |c| c.filters = Filters::Off, "0 tables without a filter, not 3000"),
            ("asked", |c| c.asked = Asked::Present, "0 tables held a key, not 1000"),
            ("data", |c| c.levels[0].counters.data_block_requests = 31, "31 data-block requests"),
            ("reads", |c| c.levels[0].counters.physical_reads = 61, "61 reads for 60"),
            ("bytes", |c| c.levels[0].counters.bytes_read = 39, "39 bytes in 40 reads"),
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
