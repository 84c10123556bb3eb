//! Bloom join: the small side sends a filter of its keys, and the large side sends only rows that
//! match.
//!
//! `cargo run --release -p sievedb-filter --example bloom_join`
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::HashMap;

use sievedb_filter::DecodeError;
use sievedb_filter::standalone::BloomFilter;

const CUSTOMERS: u64 = 1_000_000;
const ORDERS: u64 = 5_000_000;
/// Bytes of an order's row: number, customer, amount.
const ROW_BYTES: u64 = 24;

struct Order {
    customer: u64,
    cents: u64,
}

/// Returns the orders, on the remote machine.
fn orders() -> impl Iterator<Item = Order> {
    let mut random = 7;
    (0..ORDERS).map(move |_| Order {
        customer: next(&mut random) % CUSTOMERS,
        cents: next(&mut random) % 10_000,
    })
}

fn main() -> Result<(), DecodeError> {
    // The small side: the customers of one town, one in two hundred.
    let town: Vec<u64> = (0..CUSTOMERS).filter(|customer| customer % 200 == 3).collect();
    println!("{} customers of a town, {ORDERS} orders of all {CUSTOMERS} customers\n", town.len());
    println!(
        "{:12}  {:>12}  {:>10}  {:>10}  {:>9}",
        "rate", "filter bytes", "rows sent", "useless", "MB moved"
    );
    let everything = (ORDERS * ROW_BYTES) as f64 / 1e6;
    println!("{:12}  {:12}  {ORDERS:10}  {:10}  {everything:9.3}", "no filter", 0, "");
    for fpr in [0.1, 0.01, 0.001] {
        let mut filter = BloomFilter::with_rate(town.len() as u64, fpr);
        for customer in &town {
            filter.insert(customer.to_le_bytes());
        }
        let message = filter.to_bytes();

        // On the remote machine.
        let filter = BloomFilter::from_bytes(&message)?;
        let sent: Vec<Order> =
            orders().filter(|order| filter.may_contain(order.customer.to_le_bytes())).collect();

        // Locally, the join drops the false positives.
        let mut spent: HashMap<u64, u64> = town.iter().map(|&customer| (customer, 0)).collect();
        let mut in_vain = 0;
        for order in &sent {
            match spent.get_mut(&order.customer) {
                Some(cents) => *cents += order.cents,
                None => in_vain += 1,
            }
        }
        let moved = (message.len() as u64 + sent.len() as u64 * ROW_BYTES) as f64 / 1e6;
        println!("{fpr:<12}  {:12}  {:10}  {in_vain:10}  {moved:9.3}", message.len(), sent.len());
        let all = orders().filter(|order| order.customer % 200 == 3);
        assert_eq!(spent.values().sum::<u64>(), all.map(|order| order.cents).sum::<u64>());
    }
    println!("\nThe sums agree with those over all orders, at every rate.");
    Ok(())
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
