//! Checks for taken user names: 10,000 stored names, 1,000 requests, and lookups in the store.
//!
//! A request reaches the store only if the filter may match: for present names, and for one in a
//! hundred absent ones.

use std::{cell::Cell, collections::HashSet, fmt::Write as _};

use serde_json::json;
use sievedb_filter::{
    BlockedBloom, Ribbon, key_hash,
    params::{blocked_bloom_bits_per_key, columns_for_fpr},
    standalone::BloomFilter,
};
use sievedb_workload::random::{Permutation, Random};

use crate::{
    Common, Outcome, Report,
    known::{self, Figure},
    text,
};

const NAMES: u64 = 10_000;
const REQUESTS: u64 = 1_000;
const ABSENT: u64 = 300;
const RATE: f64 = 0.01;

/// Repetitions with different names, for the mean.
const REPEATS: u64 = 1_000;
const REPEATS_SMALL: u64 = 20;

const SYLLABLES: [&str; 16] = [
    "al", "bek", "da", "er", "gul", "ina", "ka", "lan", "mir", "nur", "ol", "ra", "sa", "ti", "ya",
    "zha",
];

/// The store: exact, with a counter of its lookups.
struct Store {
    names: HashSet<String>,
    asked: Cell<u64>,
}

impl Store {
    fn has(&self, name: &str) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.names.contains(name)
    }
}

/// Stored names and requests.
struct Traffic {
    store: Store,
    hashes: Vec<u64>,
    requests: Vec<String>,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        let names: Vec<String> = (0..NAMES + ABSENT).map(|index| name(seed, index)).collect();
        let (stored, absent) = names.split_at(NAMES as usize);
        let mut random = Random::new(seed);
        let present = (ABSENT..REQUESTS).map(|_| random.choose(stored).clone());
        let all: Vec<String> = present.chain(absent.iter().cloned()).collect();
        let order = Permutation::new(REQUESTS, seed);
        let requests = (0..REQUESTS).map(|i| all[order.at(i) as usize].clone()).collect();
        let hashes = stored.iter().map(|name| key_hash(name.as_bytes(), 0)).collect();
        let store = Store { names: stored.iter().cloned().collect(), asked: Cell::new(0) };
        Self { store, hashes, requests }
    }

    /// Returns the number of requests that reach the store behind a filter.
    ///
    /// # Errors
    ///
    /// Returns an error if an answer is wrong.
    fn reaching(&self, may_contain: impl Fn(u64) -> bool) -> Result<u64, String> {
        self.store.asked.set(0);
        for name in &self.requests {
            let taken = may_contain(key_hash(name.as_bytes(), 0)) && self.store.has(name);
            if taken != self.store.names.contains(name) {
                return Err(format!("{name}: taken is {taken}"));
            }
        }
        Ok(self.store.asked.get())
    }

    /// Returns the same for each of [`FILTERS`].
    fn all(&self) -> Result<[u64; 4], String> {
        let blocked_bits = blocked_bloom_bits_per_key(RATE).expect("lines reach 1 %");
        let blocked = BlockedBloom::build(&self.hashes, blocked_bits);
        let ribbon = Ribbon::build(&self.hashes, columns_for_fpr(RATE));
        let mut bloom = BloomFilter::with_rate(NAMES, RATE);
        for &hash in &self.hashes {
            bloom.insert_hash(hash);
        }
        Ok([
            self.reaching(|_| true)?,
            self.reaching(|hash| bloom.may_contain_hash(hash))?,
            self.reaching(|hash| blocked.may_contain_hash(hash))?,
            self.reaching(|hash| ribbon.may_contain_hash(hash))?,
        ])
    }
}

const FILTERS: [&str; 4] = ["no filter", "BloomFilter, 1 %", "BlockedBloom, 1 %", "Ribbon, 1 %"];

/// Returns name number `index` of a seed. Names are distinct by the number at their end.
fn name(seed: u64, index: u64) -> String {
    let mut random = Random::new(seed ^ index << 32);
    let syllables: String = (0..2 + random.below(3)).map(|_| *random.choose(&SYLLABLES)).collect();
    format!("{syllables}{index}")
}

pub(crate) fn run(common: &Common) -> Report {
    let repeats = if common.small { REPEATS_SMALL } else { REPEATS };
    let bar = text::bar(repeats, "user names");
    let first = Traffic::new(common.seed).all()?;
    let mut sums = [0; FILTERS.len()];
    for repeat in 0..repeats {
        let reaching = Traffic::new(common.seed.wrapping_add(1 + repeat)).all()?;
        for (sum, reaching) in sums.iter_mut().zip(reaching) {
            *sum += reaching;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut figures = Vec::new();
    let mut results = Vec::new();
    for ((filter, one), sum) in FILTERS.into_iter().zip(first).zip(sums) {
        let mean = sum as f64 / repeats as f64;
        let known = if filter == "no filter" { "1,000" } else { "700 + 1 % of 300 = 703" };
        figures.push(Figure::new(filter, known, format!("{one}, mean {mean:.2}")));
        results.push(json!({ "filter": filter, "requests": one, "mean": mean }));
    }
    let mut out = String::new();
    writeln!(
        out,
        "{} names stored, {} requests, {ABSENT} of them for names that are not there. Requests that\nreached the store; the mean is over {} more sets of names:\n",
        text::count(NAMES),
        text::count(REQUESTS),
        text::count(repeats),
    )?;
    out += &known::table(&figures);
    let json =
        json!({ "names": NAMES, "requests": REQUESTS, "absent": ABSENT, "results": results });
    Ok(Outcome { text: out, json, fault: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_distinct() {
        let names: HashSet<String> = (0..NAMES).map(|index| name(1, index)).collect();
        assert_eq!(names.len() as u64, NAMES);
    }

    #[test]
    fn filters_reject_most_absent_names() {
        let [all, filtered @ ..] = Traffic::new(1).all().unwrap();
        assert_eq!(all, REQUESTS);
        for reaching in filtered {
            // 3 of 300 are expected; 15 are seven deviations more.
            assert!((REQUESTS - ABSENT..=REQUESTS - ABSENT + 15).contains(&reaching), "{reaching}");
        }
    }
}
