//! Build time, query time and space of the table filters, side by side.
//!
//! `cargo run --release -p sievedb-filter --example table_filters [KEYS...]`
//!
//! Times are processor time of this thread, medians over rounds in which the filters take turns.
//! Nothing is hashed: the numbers are those of the filters alone.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::hint::black_box;

use sievedb_filter::{Expected, FilterKind, TableFilter, filter_block};

const ROUNDS: usize = 9;
const ASKED: usize = 1 << 16;

fn main() {
    let mut counts: Vec<usize> =
        std::env::args().skip(1).map(|word| word.parse().expect("a number of keys")).collect();
    if counts.is_empty() {
        counts = vec![1_000, 10_000, 100_000, 1_000_000];
    }
    println!(
        "{:>9}  {:24}  {:>9}  {:>7}  {:>8}  {:>8}  {:>8}  {:>8}",
        "keys", "filter", "bits/key", "rate %", "build ns", "absent", "present", "batched"
    );
    for keys in counts {
        table(keys);
    }
}

fn table(keys: usize) {
    let kinds = [
        ("blocked Bloom, 10 bits", FilterKind::BlockedBloom, 10.0),
        ("ribbon, 7 columns", FilterKind::Ribbon, 7.0),
        ("ribbon, 6.72 columns", FilterKind::Ribbon, 6.72),
        ("ribbon, 8 columns", FilterKind::Ribbon, 8.0),
        ("ribbon, 10 columns", FilterKind::Ribbon, 10.0),
        ("binary fuse, 8 bits", FilterKind::BinaryFuse, 9.0),
        ("binary fuse, 16 bits", FilterKind::BinaryFuse, 18.0),
    ];
    let build = |kind, hashes: &[u64], bits| {
        TableFilter::build(kind, hashes, bits).expect("none is a reserved kind")
    };
    let hashes: Vec<u64> = (0..keys as u64).map(mix).collect();
    let absent: Vec<u64> = (1..=ASKED as u64).map(|i| mix(i << 40)).collect();
    let present: Vec<u64> =
        absent.iter().map(|hash| hashes[(hash % keys as u64) as usize]).collect();
    let filters = kinds.map(|(_, kind, bits)| build(kind, &hashes, bits));
    let mut times = kinds.map(|_| [const { Vec::new() }; 4]);
    let mut answers = vec![false; ASKED];
    for _ in 0..ROUNDS {
        for ((&(_, kind, bits), filter), times) in kinds.iter().zip(&filters).zip(&mut times) {
            times[0].push(time(|| drop(black_box(build(kind, &hashes, bits)))) / keys as f64);
            for (asked, times) in [&absent, &present].into_iter().zip(&mut times[1..]) {
                let ask = || {
                    for _ in 0..8 {
                        let maybe =
                            asked.iter().filter(|&&hash| filter.may_contain_hash(hash)).count();
                        black_box(maybe);
                    }
                };
                times.push(time(ask) / (8 * ASKED) as f64);
            }
            let ask = || {
                for _ in 0..8 {
                    filter.may_contain_hashes(black_box(&absent), &mut answers);
                    black_box(&mut answers);
                }
            };
            times[3].push(time(ask) / (8 * ASKED) as f64);
        }
    }
    for (((name, ..), filter), times) in kinds.iter().zip(&filters).zip(times) {
        let stored = filter_block::encode(filter, Expected { hash_seed: 0, salt: 0 });
        let [build, absent, present, batched] = times.map(median);
        println!(
            "{keys:>9}  {name:24}  {:>9.3}  {:>7.4}  {build:>8.1}  {absent:>8.2}  {present:>8.2}  {batched:>8.2}",
            stored.len() as f64 * 8.0 / keys as f64,
            filter.expected_fpr() * 100.0,
        );
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Nanoseconds of processor time that `work` takes.
fn time(work: impl FnOnce()) -> f64 {
    let start = thread_nanoseconds();
    work();
    (thread_nanoseconds() - start) as f64
}

fn thread_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The finaliser of SplitMix64.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
