//! Cache admission: keys requested once should not evict keys requested again.
//!
//! `cargo run --release -p sievedb-filter --example cache_admission`
//!
//! Three caches of the same size get the same requests. The first admits every miss. The second
//! admits only keys that a Bloom filter has seen before. The third admits only keys that a
//! count-min sketch estimates as more popular than the entry to evict (TinyLFU).
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::{BTreeMap, HashMap};

use sievedb_filter::standalone::{BloomFilter, CountMinSketch};

const REQUESTS: u64 = 2_000_000;
const CACHE_ENTRIES: usize = 5_000;
/// Requests after which the filters are aged.
const AGE: u64 = 200_000;

/// An LRU set of keys.
#[derive(Default)]
struct Lru {
    last_use: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    hits: u64,
    written: u64,
}

impl Lru {
    /// Serves a request. `admit` decides if an absent key is admitted, given the key to evict.
    fn request(&mut self, key: u64, time: u64, admit: impl FnOnce(Option<u64>) -> bool) {
        let victim = self.by_use.first_key_value().map(|(&time, &key)| (time, key));
        let victim = victim.filter(|_| self.last_use.len() == CACHE_ENTRIES);
        if let Some(before) = self.last_use.get(&key) {
            self.hits += 1;
            self.by_use.remove(before);
        } else if admit(victim.map(|(_, key)| key)) {
            self.written += 1;
            if let Some((time, key)) = victim {
                self.by_use.remove(&time);
                self.last_use.remove(&key);
            }
        } else {
            return;
        }
        self.last_use.insert(key, time);
        self.by_use.insert(time, key);
    }
}

fn main() {
    let mut random = 1;
    let mut caches = [(); 3].map(|()| Lru::default());
    let mut seen = BloomFilter::with_rate(AGE, 0.01);
    let mut requests = CountMinSketch::with_error(1e-4, 0.02);
    for time in 0..REQUESTS {
        // Half of the requests are for new keys, the others mostly for popular ones.
        let key = match next(&mut random) % 2 {
            0 => 1 << 63 | time,
            _ => 1e6_f64.powf(next(&mut random) as f64 / 2_f64.powi(64)) as u64,
        };
        let bytes = key.to_le_bytes();
        let (before, popularity) = (seen.insert(bytes), requests.insert(bytes));
        let [all, second, popular] = &mut caches;
        all.request(key, time, |_| true);
        second.request(key, time, |_| before);
        popular.request(key, time, |victim| {
            victim.is_none_or(|key| popularity > requests.estimate(key.to_le_bytes()))
        });
        if time % AGE == AGE - 1 {
            seen.clear();
            requests.halve();
        }
    }
    println!("{REQUESTS} requests, half of them for keys requested once; {CACHE_ENTRIES} entries");
    println!("{:32}  {:>6}  {:>9}", "admits", "hits %", "written");
    let names = ["everything", "at the second request (Bloom)", "the more popular (count-min)"];
    for (name, cache) in names.into_iter().zip(&caches) {
        let hits = cache.hits as f64 * 100.0 / REQUESTS as f64;
        println!("{name:32}  {hits:6.2}  {:9}", cache.written);
    }
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
