//! Log blooms, as in the headers of Ethereum's blocks: 2048 bits, 3 probes, over the addresses and
//! topics of a block's logs. A search for an address reads only the blocks whose header matches.
//!
//! (Ethereum takes the three bits from Keccak-256; shape and rates are the same here.)
//!
//! `cargo run --release -p sievedb-filter --example log_bloom`
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use sievedb_filter::standalone::BloomFilter;

const BITS: u64 = 2048;
const PROBES: u32 = 3;
const BLOCKS: u64 = 20_000;
/// Blocks per union of filters that a node keeps.
const SECTION: usize = 4;
/// Addresses in no block, to measure the rate.
const ABSENT: u64 = 1_000;

/// Returns addresses and topics of a block: a few busy contracts are in most blocks.
fn entries(block: u64, logs: u64) -> impl Iterator<Item = [u8; 20]> {
    (0..logs * 3).map(move |i| {
        let random = mix(block << 20 | i);
        address(if random.is_multiple_of(4) { mix(random) % 50 } else { mix(random) })
    })
}

fn address(number: u64) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[12..].copy_from_slice(&mix(number).to_be_bytes());
    bytes
}

/// Applies the finalizer of SplitMix64, a hash.
fn mix(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() {
    println!("{BLOCKS} blocks, {BITS} bits and {PROBES} probes each");
    println!("blocks read for an address that is in {} of them:", BLOCKS / 500);
    println!(
        "{:>5}  {:>6}  {:>10}  {:>10}  {:>9}  {:>9}",
        "logs", "fill %", "expected %", "measured %", "by blocks", "by unions"
    );
    let target = address(4_711);
    let has_it = |block: u64| block % 500 == 7;
    for logs in [20, 60, 120, 300] {
        let headers: Vec<BloomFilter> = (0..BLOCKS)
            .map(|block| {
                let mut header = BloomFilter::with_shape(BITS, PROBES);
                entries(block, logs).chain(has_it(block).then_some(target)).for_each(|entry| {
                    header.insert(entry);
                });
                header
            })
            .collect();

        // There are no false negatives.
        assert!(
            headers
                .iter()
                .zip(0..)
                .all(|(header, block)| { !has_it(block) || header.may_contain(target) })
        );
        let by_blocks = headers.iter().filter(|header| header.may_contain(target)).count();
        // Unions are probed first. One has the bits of all its blocks, and so a higher fill.
        let unions = headers.chunks(SECTION).filter(|section| {
            let mut union = section[0].clone();
            section[1..].iter().for_each(|header| union.union(header).expect("equal shapes"));
            union.may_contain(target)
        });
        let by_unions = unions.count() * SECTION;

        // The average over many addresses. Busy addresses set the same bits in nearly all blocks. A
        // single address shares some of these bits everywhere, or none.
        let matched: usize = (0..ABSENT)
            .map(|i| address(1 << 40 | i))
            .map(|absent| headers.iter().filter(|header| header.may_contain(absent)).count())
            .sum();
        let measured = matched as f64 / (ABSENT * BLOCKS) as f64;
        let mean =
            |of: fn(&BloomFilter) -> f64| headers.iter().map(of).sum::<f64>() / BLOCKS as f64;
        let (fill, expected) =
            (mean(|header| header.stats().fill), mean(BloomFilter::expected_fpr));
        println!(
            "{logs:>5}  {:>6.1}  {:>10.3}  {:>10.3}  {by_blocks:>9}  {by_unions:>9}",
            fill * 100.0,
            expected * 100.0,
            measured * 100.0,
        );
        assert!((measured / expected - 1.0).abs() < 0.15, "{measured}, not {expected}");
    }
}
