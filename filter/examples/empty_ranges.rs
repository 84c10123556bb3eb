//! Empty ranges: rate and cost of the range filter.
//!
//! A million points: random ones with ranges anywhere, and clusters with ranges next to the points,
//! where filters that truncate keys have false positives.
//!
//! `cargo run --release -p sievedb-filter --example empty_ranges`
#![expect(clippy::print_stdout, reason = "the numbers are the result")]
#![expect(clippy::disallowed_methods, reason = "times are a part of them")]

use std::time::Instant;

use sievedb_filter::{RangeFilter, range_filter::Points};

const POINTS: u64 = 1_000_000;
const PROBES: u64 = 200_000;
const ROUNDS: u64 = 5;
/// Bits per key, and points per range.
const CASES: [(f64, u64); 6] =
    [(8.0, 1), (10.0, 1), (12.6, 16), (16.0, 1), (16.0, 164), (18.6, 1024)];

fn random(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    z ^ (z >> 32)
}

/// Returns random points, or clusters of a hundred with gaps of up to 4,096.
fn points(clustered: bool) -> Vec<u64> {
    let at = |i: u64| match clustered {
        false => random(i),
        true => (random(i / 100) >> 1) + 4_096 * (i % 100) + random(i) % 4_096,
    };
    let mut points: Vec<u64> = (0..POINTS).map(at).collect();
    points.sort_unstable();
    points
}

/// Returns empty ranges of `length` points.
fn empty(points: &[u64], length: u64, near: bool) -> Vec<(u64, u64)> {
    let first = |i: u64| match near {
        false => random(!i),
        true => points[(random(!i) % POINTS) as usize].saturating_add(1 + i % 100),
    };
    let ranges = (0..PROBES).map(first).map(|first| (first, first.saturating_add(length - 1)));
    let is_empty = |&(first, last): &(u64, u64)| {
        let at = points.partition_point(|&point| point < first);
        points.get(at).is_none_or(|&point| point > last)
    };
    ranges.filter(is_empty).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("| keys     | points | bits | in memory | rate    | bound   | build ns | probe ns |");
    println!("|----------|--------|------|-----------|---------|---------|----------|--------|");
    for (keys, is_hard) in [("random", false), ("clusters", true)] {
        let points = points(is_hard);
        for (bits_per_key, length) in CASES {
            let probed = empty(&points, length, is_hard);
            let (mut rates, mut builds, mut probes) = (Vec::new(), Vec::new(), Vec::new());
            let (mut bits, mut bound) = (0.0, 0.0);
            for seed in 0..ROUNDS {
                let points = Points::new(points.clone());
                let start = Instant::now();
                let filter = RangeFilter::build(points, bits_per_key, random(seed + 77));
                builds.push(start.elapsed().as_secs_f64() * 1e9 / POINTS as f64);
                let start = Instant::now();
                let matched = probed.iter().filter(|(a, b)| filter.may_contain_range(*a, *b));
                let matched = matched.count() as f64;
                probes.push(start.elapsed().as_secs_f64() * 1e9 / probed.len() as f64);
                rates.push(matched / probed.len() as f64);
                bits = filter.memory_bytes() as f64 * 8.0 / POINTS as f64;
                bound = length as f64 * (2.0 - bits_per_key).exp2();
            }
            let rate = rates.iter().sum::<f64>() / ROUNDS as f64 * 100.0;
            let (build, probe, bound) = (median(builds), median(probes), bound * 100.0);
            println!(
                "| {keys:8} | {length:6} | {bits_per_key:4.1} | {bits:9.3} | {rate:5.3} % \
                     | {bound:5.3} % | {build:8.1} | {probe:6.1} |"
            );
        }
    }
}
