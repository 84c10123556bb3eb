//! A guard against cache penetration: requests for absent keys pass every cache and reach the
//! store, unless a filter over the stored keys rejects them.
//!
//! `cargo run --release -p sievedb-filter --example cache_penetration`
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use std::collections::{BTreeSet, HashMap};

use sievedb_filter::standalone::BloomFilter;

const STORED: u64 = 100_000;
const REQUESTS: u64 = 1_000_000;
/// Requests for absent users, of 100.
const ABSENT_PERCENT: u64 = 60;
const CACHE_KEYS: usize = 10_000;

/// The slow store, which counts its requests.
struct Store {
    users: BTreeSet<String>,
    reads: u64,
}

impl Store {
    fn read(&mut self, user: &str) -> Option<String> {
        self.reads += 1;
        self.users.contains(user).then(|| format!("the profile of {user}"))
    }
}

/// Serves requests from a cache and an optional filter. Returns the number of users found.
fn serve(store: &mut Store, guard: Option<&BloomFilter>) -> u64 {
    let mut cache: HashMap<String, String> = HashMap::new();
    let mut found = 0;
    for request in 0..REQUESTS {
        let user = user(request);
        if cache.contains_key(&user) {
            found += 1;
            continue;
        }
        if guard.is_some_and(|guard| !guard.may_contain(&user)) {
            continue; // Definitely absent.
        }
        if let Some(profile) = store.read(&user) {
            found += 1;
            if cache.len() == CACHE_KEYS {
                cache.clear(); // Crude, but the same for both.
            }
            cache.insert(user, profile);
        }
    }
    found
}

/// Returns the user of a request: a stored one, mostly with a small number, or an invented one.
fn user(request: u64) -> String {
    let random = mix(request);
    if random % 100 < ABSENT_PERCENT {
        return format!("invented{}", mix(random));
    }
    let share = (mix(random) >> 11) as f64 / (1_u64 << 53) as f64;
    format!("user{}", (STORED as f64 * share.powi(4)) as u64)
}

/// Applies the finalizer of SplitMix64, a hash.
fn mix(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() {
    let mut store = Store { users: (0..STORED).map(|i| format!("user{i}")).collect(), reads: 0 };
    let mut guard = BloomFilter::with_rate(STORED, 0.01);
    for user in &store.users {
        guard.insert(user);
    }
    println!("{}, {} KiB", guard.stats(), guard.memory_bytes() >> 10);

    let found = serve(&mut store, None);
    let unguarded = store.reads;
    println!("without a guard: {REQUESTS} requests, {unguarded} reached the store");
    store.reads = 0;
    assert_eq!(serve(&mut store, Some(&guard)), found, "the guard hides no user");
    println!("with a guard:    {REQUESTS} requests, {} reached the store", store.reads);
    let absent = (0..REQUESTS).filter(|&request| user(request).starts_with("inv")).count() as u64;
    let stopped = unguarded - store.reads;
    println!(
        "{absent} were for absent users: {stopped} rejected, {:.2} % passed",
        (absent - stopped) as f64 * 100.0 / absent as f64
    );
    assert!((absent - stopped) as f64 / (absent as f64) < 0.012);
}
