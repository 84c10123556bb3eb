//! The public interface of the ribbon filter: no false negatives, rate and space as stated.

use sievedb_filter::{BlockedBloom, Expected, FilterKind, Ribbon, filter_block};

use crate::random::{Random, seed};

const EXPECTED: Expected = Expected { hash_seed: 0x5eed, salt: 0x5a17 };

fn encode(filter: Ribbon) -> Vec<u8> {
    filter_block::encode(&filter.into(), EXPECTED).to_vec()
}

/// A million keys with each of twenty seeds: rare faults do not show in small sets. `SIEVE_LONG=1`
/// uses ten million.
#[test]
fn a_million_keys_are_found_over_many_seeds() {
    let seed = seed();
    let keys = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000 } else { 1_000_000 };
    for round in 0..20_u64 {
        let mut random = Random(seed ^ round << 32);
        let hashes = random.many(keys);
        let columns = 1.0 + round as f64 * 0.61;
        let filter = Ribbon::build(&hashes, columns);
        let missing_keys = hashes.iter().filter(|&&hash| !filter.may_contain_hash(hash)).count();
        assert_eq!(missing_keys, 0, "round {round}, {columns} columns");
    }
}

/// A filter large enough for chunks of the radix pass and four or more layers.
#[test]
fn a_large_set_is_found() {
    let mut random = Random(seed());
    let mut hashes = random.many(1_000_000);
    hashes.extend_from_within(..1_000); // Duplicates that are not adjacent.
    let filter = Ribbon::build(&hashes, 7.0);
    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
    assert_eq!(filter.key_count(), 1_001_000);
}

#[test]
fn hostile_hashes_are_found() {
    let cases: [(&str, Vec<u64>); 7] = [
        ("counters", (0..5_000).collect()),
        ("high bits alone", (0..5_000).map(|i| i << 48).collect()),
        ("equal high bits", (0..5_000).map(|i| u64::MAX << 20 | i).collect()),
        ("extremes", vec![0, u64::MAX, 1, u64::MAX - 1, 1 << 63]),
        ("one bit", (0..64).map(|bit| 1 << bit).collect()),
        ("all the same", vec![42; 5_000]),
        ("two in turn", (0..5_000).map(|i| i % 2).collect()),
    ];
    for (name, hashes) in cases {
        for columns in [1.0, 6.72, 8.0, 20.3, 32.0] {
            let filter = Ribbon::build(&hashes, columns);
            for &hash in &hashes {
                assert!(filter.may_contain_hash(hash), "{name}, {columns} columns");
            }
        }
    }
}

/// Median overhead of thresholds, empty slots and trailer over the columns. Most filters of 100,000
/// keys take 0.28 %; one in ten takes another block: 0.35 %.
#[test]
fn space_exceeds_the_columns_only_slightly() {
    let seed = seed();
    for (keys, rounds, most) in SPACE {
        let mut overs: Vec<f64> = (0..rounds)
            .map(|round| {
                let mut random = Random(seed ^ round << 32);
                let filter = Ribbon::build(&random.many(keys), 7.0);
                let memory_bytes = filter.memory_bytes();
                let block = encode(filter);
                assert!(memory_bytes <= block.len() + 1_000);
                block.len() as f64 / (keys as f64 * 7.0 / 8.0) - 1.0
            })
            .collect();
        overs.sort_by(f64::total_cmp);
        let over = overs[overs.len() / 2];
        let worst = overs[overs.len() - 1];
        eprintln!("{keys} keys: {:.2} % over, at worst {:.2} %", over * 1e2, worst * 1e2);
        assert!(over <= most, "{keys} keys: {over}");
    }
}

/// Keys, filters, and the maximum overhead of seven columns in a whole block.
const SPACE: [(usize, u64, f64); 5] = [
    (1_000, 11, 0.05),
    (10_000, 11, 0.012),
    (100_000, 15, 0.003),
    (300_000, 5, 0.003),
    (1_000_000, 3, 0.003),
];

#[test]
fn kinds_report_their_rates() {
    let bloom = FilterKind::BlockedBloom.expected_fpr(10.0).expect("a known kind");
    assert!((0.0096..0.0098).contains(&bloom), "{bloom}");
    let ribbon = FilterKind::Ribbon.expected_fpr(6.72).expect("a known kind");
    assert!((ribbon - 0.01).abs() < 1e-12, "{ribbon}");
    assert_eq!(FilterKind::Ribbon.expected_fpr(0.3), Some(0.5), "at least one column");
}

#[test]
fn batches_of_a_bloom_filter_equal_single_probes() {
    let mut random = Random(seed());
    let hashes = random.many(1_000);
    let filter = BlockedBloom::build(&hashes, 8.0);
    for n in [0, 1, 31, 32, 33, 1_000] {
        let probed = [&hashes[..n], &random.many(n)].concat();
        let mut results = vec![false; probed.len()];
        filter.may_contain_hashes(&probed, &mut results);
        for (hash, result) in probed.iter().zip(results) {
            assert_eq!(filter.may_contain_hash(*hash), result);
        }
    }
}
