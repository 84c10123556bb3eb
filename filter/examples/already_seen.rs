//! Recommendations that a user has not seen yet: a growing filter per user.
//!
//! `cargo run --release -p sievedb-filter --example already_seen`
//!
//! A false positive withholds a new item, which is harmless. A false negative, which would show an
//! item again, does not occur.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::HashSet;

use sievedb_filter::standalone::ScalableBloom;

const USERS: u64 = 2_000;
const ITEMS: u64 = 10_000_000;
/// Few users see many items: user `i` sees about `MOST_SEEN / i`.
const MOST_SEEN: u64 = 200_000;
const RATE: f64 = 0.01;

fn main() {
    let mut random = 3;
    let (mut bytes, mut exact_bytes, mut items, mut layers_max) = (0, 0, 0, 0);
    let (mut offered, mut withheld, mut shown_again) = (0_u64, 0_u64, 0_u64);
    for user in 1..=USERS {
        // The number of items is unknown in advance: all filters start with 64.
        let mut seen = ScalableBloom::with_rate(64, RATE);
        let mut exact = HashSet::new();
        for _ in 0..20 + MOST_SEEN / user {
            let item = next(&mut random) % ITEMS;
            seen.insert(item.to_le_bytes());
            exact.insert(item);
        }
        // Recommend: half of the candidates are already known.
        let known: Vec<u64> = exact.iter().take(100).copied().collect();
        let candidates = (0..100).map(|_| next(&mut random) % ITEMS).chain(known);
        for item in candidates {
            let shown = !seen.may_contain(item.to_le_bytes());
            match (exact.contains(&item), shown) {
                (true, true) => shown_again += 1,
                (false, false) => withheld += 1,
                _ => {}
            }
            offered += u64::from(!exact.contains(&item));
        }
        items += exact.len();
        bytes += seen.memory_bytes();
        // A hash set of numbers: eight bytes and one control byte per slot, at most 7/8 full.
        exact_bytes += (exact.capacity() * 8 / 7).next_power_of_two() * 9;
        layers_max = layers_max.max(seen.layers());
    }
    println!("{USERS} users have seen {items} items, from 20 to {MOST_SEEN} each");
    println!(
        "filters: {:8.3} MB, {:.1} bits per item, up to {layers_max} layers",
        mb(bytes),
        bits(bytes, items)
    );
    println!("sets:    {:8.3} MB, {:.1} bits per item", mb(exact_bytes), bits(exact_bytes, items));
    println!("shown again: {shown_again}");
    let share = withheld as f64 * 100.0 / offered as f64;
    println!(
        "new items withheld: {withheld} of {offered}, {share:.2} % ({:.0} % was allowed)",
        RATE * 100.0
    );
    assert_eq!(shown_again, 0, "a filter has a false negative");
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

fn bits(bytes: usize, items: usize) -> f64 {
    bytes as f64 * 8.0 / items as f64
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
