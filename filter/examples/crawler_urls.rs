//! URL deduplication in a crawler: workers share one filter of seen links.
//!
//! `cargo run --release -p sievedb-filter --example crawler_urls`
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use sievedb_filter::standalone::AtomicBloomFilter;

const WORKERS: u64 = 4;
/// Links found, most of them several times.
const LINKS: u64 = 2_000_000;
/// Pages crawled.
const PAGES: u64 = 500_000;
const RATE: f64 = 0.001;

/// Returns the target of a link. Some pages have links from everywhere.
fn url(link: u64) -> String {
    let share = (mix(link) >> 11) as f64 / (1_u64 << 53) as f64;
    let page = mix((PAGES as f64 * share.powi(2)) as u64);
    format!("https://www.example{:03}.org/articles/{page:016x}/index.html?lang=en", page % 997)
}

/// Applies the finalizer of SplitMix64, a hash.
fn mix(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() {
    let seen = AtomicBloomFilter::with_rate(PAGES, RATE);
    let fetched = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (seen, fetched) = (&seen, &fetched);
            scope.spawn(move || {
                for link in (worker..LINKS).step_by(WORKERS as usize) {
                    // Probes and inserts in one pass. Two workers that find a new page concurrently
                    // may both fetch it.
                    if !seen.insert(url(link)) {
                        fetched.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });

    // An exact set of the URLs, for comparison.
    let exact: HashSet<String> = (0..LINKS).map(url).collect();
    let set_bytes: usize =
        exact.iter().map(|url| url.len() + size_of::<String>()).sum::<usize>() * 8 / 7;
    assert!(exact.iter().all(|url| seen.may_contain(url)), "there are no false negatives");

    let (fetched, pages) = (fetched.into_inner(), exact.len() as u64);
    let missed = pages.saturating_sub(fetched);
    println!("{LINKS} links to {pages} pages, {WORKERS} workers");
    println!("{}", seen.stats());
    println!("fetched {fetched} pages: {:.1} % of the links were repeats", {
        (LINKS - fetched) as f64 * 100.0 / LINKS as f64
    });
    println!(
        "missed {missed} pages, {:.3} %, as false positives",
        missed as f64 * 100.0 / pages as f64
    );
    println!(
        "memory: filter {} KiB, a hash set at least {} KiB, {} times as much",
        seen.memory_bytes() >> 10,
        set_bytes >> 10,
        set_bytes / seen.memory_bytes()
    );
    assert!((missed as f64) < RATE * pages as f64, "the rate is an upper bound until it is full");
}
