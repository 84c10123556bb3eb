//! All paths build the same filters and give the same results.

use proptest::prelude::*;

use super::path::Path;
use super::shape::is_bumped_at;
use super::*;
use crate::hash::key_hash;
use crate::key_sets::{adversarial_keys, hostile_hashes};

/// SplitMix64.
fn random(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn hashes(seed: u64, n: usize) -> Vec<u64> {
    std::iter::repeat_with(random(seed)).take(n).collect()
}

/// Builds on every path, checks that all filters are equal, and returns them.
fn on_every_path(hashes: &[u64], bits_per_key: f64) -> Vec<Ribbon> {
    let filters: Vec<Ribbon> =
        Path::all().into_iter().map(|path| Ribbon::build_on(path, hashes, bits_per_key)).collect();
    for filter in &filters {
        assert!(filter.shape == filters[0].shape, "{:?}", filter.path);
        assert!(filter.thresholds == filters[0].thresholds, "{:?}", filter.path);
        assert!(filter.groups == filters[0].groups, "{:?}", filter.path);
    }
    filters
}

/// Checks that every path gives the results of the portable one, alone and in a batch.
fn assert_equal_results(filters: &[Ribbon], probe: &[u64]) {
    let want: Vec<bool> = probe.iter().map(|&hash| filters[0].may_contain_hash(hash)).collect();
    for filter in filters {
        let mut batch = vec![false; probe.len()];
        filter.may_contain_hashes(probe, &mut batch);
        assert!(batch == want, "{:?}, in a batch", filter.path);
        let one_by_one: Vec<bool> = probe.iter().map(|&h| filter.may_contain_hash(h)).collect();
        assert!(one_by_one == want, "{:?}", filter.path);
        let among_others = probe.iter().map(|&h| filter.may_contain_mixed(Probe::new(h)));
        assert!(among_others.eq(want.iter().copied()), "{:?}, among others", filter.path);
    }
}

/// Checks that every path finds `keys`, alone and in a batch.
fn assert_found_on_every_path(name: &str, keys: &[u64], columns: f64) {
    let filters = on_every_path(keys, columns);
    assert_equal_results(&filters, keys);
    let missing_keys = keys.iter().find(|&&hash| !filters[0].may_contain_hash(hash));
    assert_eq!(missing_keys, None, "{name}, {columns} columns");
}

#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_builds_the_same_filter() {
    for (n, bits_per_key) in [
        (0, 7.0),
        (1, 1.0),
        (300, 32.0),
        (400, 8.0),
        (3_000, 8.3),
        (5_000, 16.5),
        (20_000, 0.4),
        (20_000, 6.72),
        (50_000, 7.0),
    ] {
        let keys = hashes(n as u64, n);
        let filters = on_every_path(&keys, bits_per_key);
        assert_equal_results(&filters, &keys);
        assert!(keys.iter().all(|&hash| filters[0].may_contain_hash(hash)));
        assert_equal_results(&filters, &hashes(!(n as u64), 20_000));
    }
}

#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_finds_adversarial_keys() {
    let hashed = |keys: Vec<Vec<u8>>| keys.iter().map(|key| key_hash(key, 7)).collect();
    let keys = adversarial_keys().into_iter().map(|(name, keys)| (name, hashed(keys)));
    for (name, hashes) in keys.chain(hostile_hashes()) {
        let hashes: Vec<u64> = hashes;
        for columns in [1.0, 6.72, 16.5] {
            assert_found_on_every_path(name, &hashes, columns);
        }
    }
}

/// Enough keys for large layers. `SIEVE_LONG=1` uses ten million keys.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_finds_many_keys() {
    let many = if std::env::var_os("SIEVE_LONG").is_some() { 10_000_000_u64 } else { 600_000 };
    let keys: Vec<u64> = (0..many).map(|i| key_hash(&i.to_be_bytes(), 7)).collect();
    assert_found_on_every_path("counters", &keys, 7.0);
}

#[test]
fn probes_and_the_builder_bump_the_same_keys() {
    for threshold in 0..=u8::MAX {
        for start in 0..8 * BUCKET_STARTS {
            let (bucket, offset) = (start / BUCKET_STARTS, start % BUCKET_STARTS);
            let is_bumped = offset < kept_from(threshold >> (bucket % 4 * 2));
            assert_eq!(is_bumped_at(start, threshold), is_bumped, "{start} at {threshold}");
        }
    }
}

/// Only the equations determine which slots get rows: in dense layers, in layers with gaps wider
/// than a row, and across their ends.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn every_path_eliminates_to_the_same_rows() {
    const BLOCKS: u64 = 40;
    let mut next = random(11);
    for keys in [0, 1, 20, 60, 300, 1_500, 2_400, 3_000] {
        for groups in 1..=4 {
            let buckets = |next: &mut dyn FnMut() -> u64| -> Vec<rows::RowVec> {
                let mut rows: Vec<row::Row> = (0..keys)
                    .map(|_| row::Row {
                        start: next() % (BLOCKS * BLOCK_SLOTS),
                        coefficients: next() | 1,
                        fingerprint: (next() >> (64 - 8 * groups)) as u32,
                    })
                    .collect();
                rows.sort_unstable_by_key(|row| row.start);
                let buckets =
                    rows.chunk_by(|a, b| a.start / BUCKET_STARTS == b.start / BUCKET_STARTS);
                let fields = buckets.map(|rows| {
                    let mut fields = rows::RowVec::default();
                    fields.extend(rows.iter().copied());
                    fields
                });
                fields.collect()
            };
            let layers = [buckets(&mut next), buckets(&mut next)];
            let found = Path::all().into_iter().map(|path| {
                let mut elimination = band::Elimination::new(path, groups);
                let mut log = Vec::new();
                for layer in &layers {
                    elimination.start(BLOCKS);
                    for bucket in layer {
                        let rows = bucket.as_rows();
                        log.push(elimination.rows_from(rows.starts[0] as usize));
                        log.push(elimination.insert_all(rows).into());
                    }
                    log.push(elimination.rows_from((BLOCKS * BLOCK_SLOTS) as usize));
                    let band = elimination.finish();
                    log.extend(band.coefficients.iter().map(|&row| u32::from(row != 0)));
                }
                log
            });
            let found: Vec<Vec<u32>> = found.collect();
            assert!(found.iter().all(|log| *log == found[0]), "{keys} keys, {groups} groups");
        }
    }
}

/// A probe adds up the slots of the equation, one after the other.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn the_reference_probe_evaluates_the_equation() {
    let keys = hashes(5, 4_000);
    let filter = Ribbon::build(&keys, 9.5);
    let slot = |column: u8, slot: u64| {
        let group = &filter.groups[usize::from(column / 8)];
        let block = slot / BLOCK_SLOTS;
        let word = group.shape.first_word(block) + u64::from(column % 8);
        group.word(word as usize) >> (slot % BLOCK_SLOTS) & 1
    };
    let mut matched = 0;
    for &hash in keys.iter().chain(&hashes(6, 4_000)) {
        let want = filter.shape.layers.iter().find_map(|layer| {
            let row = row::Row::new(hash, layer.source, layer.starts);
            let bucket = layer.first_bucket + row.start / BUCKET_STARTS;
            let is_kept = layer.is_last || {
                let threshold = filter.thresholds[bucket as usize / 4] >> (bucket % 4 * 2) & 3;
                row.start % BUCKET_STARTS >= u64::from(shape::KEPT_FROM[usize::from(threshold)])
            };
            let first = layer.first_block * BLOCK_SLOTS + row.start;
            let columns = filter.shape.block_columns(first / BLOCK_SLOTS);
            is_kept.then(|| {
                (0..columns).all(|column| {
                    let chosen = (0..64).filter(|i| row.coefficients >> i & 1 == 1);
                    let sum = chosen.fold(0, |sum, i| sum ^ slot(column, first + i));
                    sum == u64::from(row.fingerprint >> column & 1)
                })
            })
        });
        assert_eq!(Some(filter.may_contain_hash(hash)), want);
        matched += usize::from(filter.may_contain_hash(hash));
    }
    assert!((4_000..4_050).contains(&matched), "{matched}");
}

/// Returns the columns of 32 that match the equation of a hash, as bits.
fn columns_met(filter: &Ribbon, hash: u64) -> u32 {
    let place = Place::of(filter, hash);
    let prints = place.fingerprint.to_le_bytes();
    let bits = filter.groups.iter().zip(prints).map(|(group, print)| {
        let met = |column: u8| query::matches_column(group.view(), &place, print, column);
        (0..8).fold(0, |bits, column| bits | u8::from(met(column)) << column)
    });
    let bits: Vec<u8> = bits.collect();
    u32::from_le_bytes(bits.try_into().expect("four groups"))
}

/// An absent key matches each column with probability 1/2, and any two with 1/4: no part of the
/// fingerprint follows from the coefficients. So each column halves the rate, including rates too
/// low to measure.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn absent_keys_match_columns_randomly() {
    const PROBES: usize = 1 << 17;
    const DEVIATIONS: f64 = 5.0;

    for (name, keys) in [("random", hashes(8, 20_000)), ("in order", (0..20_000).collect())] {
        let filter = Ribbon::build(&keys, 32.0);
        let mut met = vec![vec![0_u64; PROBES / 64]; 32];
        for (number, hash) in hashes(9, PROBES).into_iter().enumerate() {
            let columns = columns_met(&filter, hash);
            for (column, met) in met.iter_mut().enumerate() {
                met[number / 64] |= u64::from(columns >> column & 1) << (number % 64);
            }
        }
        for left in 0..32 {
            for right in 0..=left {
                let both = met[left].iter().zip(&met[right]);
                let both: u32 = both.map(|(left, right)| (left & right).count_ones()).sum();
                let share = if left == right { 0.5 } else { 0.25 };
                let deviation = (PROBES as f64 * share * (1.0 - share)).sqrt();
                let off = f64::from(both) - PROBES as f64 * share;
                assert!(off.abs() < DEVIATIONS * deviation, "{name}: {left}, {right}: {both}");
            }
        }
    }
}

/// Hashes with the same mix under the first layer's seed, and different fingerprints. In the first
/// two layers they contradict each other under every seed of the second. Found by walks of 2^34
/// steps.
#[test]
fn contradictions_in_two_layers_are_resolved() {
    const PAIRS: [[u64; 2]; 6] = [
        [0x3113_915f_4e2b_691b, 0x5b18_4fa9_90aa_d88c],
        [0xaf85_2477_e1d0_315c, 0xe731_e217_ea80_b50c],
        [0x2db5_87ce_8174_02a5, 0xe1d8_35ae_b47c_0cf5],
        [0xf538_c43c_4d84_a1fe, 0x8046_d79b_1e5d_2f8b],
        [0x62e3_980d_6c1a_297c, 0x3d27_2f1b_1d01_0cfb],
        [0xf9ca_9885_fd5a_f0ff, 0x4b64_e757_64b5_10e3],
    ];
    for [left, right] in PAIRS {
        let [left, right] = [left, right].map(|hash| Mixed::new(hash, row::seed(0, 0)));
        let [left, right] = [left.row(1001), right.row(1001)];
        assert_eq!((left.start, left.coefficients), (right.start, right.coefficients));
        assert_ne!(left.fingerprint as u8, right.fingerprint as u8);
    }
    for random in (0..6_000).step_by(500) {
        let mut keys = hashes(10, random);
        keys.extend(PAIRS.as_flattened());
        assert_found_on_every_path("pairs", &keys, 8.0);
    }
}

/// Nearly every slot gets a row: bumping wastes none.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn few_slots_stay_empty() {
    let keys = hashes(7, 200_000);
    let filter = Ribbon::build(&keys, 4.0);
    let slots = filter.shape.blocks * BLOCK_SLOTS;
    let waste = slots as f64 / keys.len() as f64 - 1.0;
    assert!(waste < 0.002, "{slots} slots");
    assert!(filter.shape.layers.len() >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]

    /// Small sets of non-random hashes, with any number of columns.
    #[test]
    fn there_are_no_false_negatives(
        seed in any::<u64>(),
        n in 0_usize..300,
        kind in 0..6,
        millibits in 1_u32..=40_000,
        far in 1_usize..20,
        share in 0_u32..=110,
    ) {
        let mut next = random(seed);
        let n = if seed % 8 == 0 { n * far } else { n };
        let keys: Vec<u64> = (0..n as u64)
            .map(|i| match kind {
                0 => next(),
                1 => seed.wrapping_add(i),
                2 => next() >> 40 | seed << 24,
                3 => next() << 40 | seed >> 24,
                4 => next() % 20,
                _ => i << 48,
            })
            .collect();
        let filters = on_every_path(&keys, f64::from(millibits) / 1e3);
        assert_equal_results(&filters, &keys);
        for &hash in &keys {
            filters[0].prefetch(hash);
            prop_assert!(filters[0].may_contain_hash(hash));
        }
        let probe: Vec<u64> = std::iter::repeat_with(next).take(200).collect();
        assert_equal_results(&filters, &probe);

        let columns = f64::from(millibits) / 1e3 * f64::from(share) / 100.0;
        assert_shrunk(&filters, columns, &probe);
        let shrunk = filters[0].shrunk_to(columns);
        for &hash in &keys {
            prop_assert!(shrunk.may_contain_hash(hash));
        }
    }
}

/// Checks a shrunk filter: the first columns of every block, on every path.
fn assert_shrunk(filters: &[Ribbon], columns: f64, probe: &[u64]) {
    let shrunk: Vec<Ribbon> = filters
        .iter()
        .map(|filter| {
            let copy = filter.shrunk_to(columns);
            let mut filter = filter.clone();
            filter.shrink_to(columns);
            assert!(copy.shape == filter.shape && copy.groups == filter.groups, "{columns}");
            assert_eq!(copy.expected_fpr(), filter.expected_fpr(), "{columns}");
            filter
        })
        .collect();
    assert_equal_results(&shrunk, probe);
    let (whole, shrunk) = (&filters[0], &shrunk[0]);
    assert_eq!(whole.memory_bytes_at(columns), shrunk.memory_bytes(), "{columns} columns");
    let lines: usize = shrunk.groups.iter().map(|group| group.lines.len()).sum();
    assert!(shrunk.memory_bytes() >= lines * size_of::<WordLine>());
    assert!(shrunk.groups.others.capacity() < shrunk.shape.group_count().max(1));
    let target = columns.max(1.0).min(whole.columns());
    let step = 1.0 / whole.shape.blocks as f64;
    assert!((shrunk.columns() - target).abs() <= step, "{} for {columns}", shrunk.columns());
    assert_eq!(shrunk.groups.len(), shrunk.shape.group_count());
    for (index, group) in shrunk.groups.iter().enumerate() {
        assert_eq!(group.shape, shrunk.shape.group(index), "{columns} columns");
        for block in 0..shrunk.shape.blocks {
            let words = |filter: &Ribbon| {
                let group = &filter.groups[index];
                let first = group.shape.first_word(block) as usize;
                (0..8).map(move |i| group.word(first + i)).collect::<Vec<u64>>()
            };
            let count = usize::from(group.shape.block_columns(block));
            assert_eq!(words(shrunk)[..count], words(whole)[..count], "{columns} columns");
        }
    }
}

#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn a_shrunk_filter_keeps_the_first_columns() {
    let keys = hashes(11, 5_000);
    let probe = [keys.clone(), hashes(12, 5_000)].concat();
    for whole in [1.0, 7.0, 8.0, 8.4, 16.0, 16.5, 20.3, 32.0] {
        let filters = on_every_path(&keys, whole);
        for columns in [-3.0, 0.5, 1.0, 1.3, 6.72, 7.999, 8.0, 8.1, 12.0, 15.9, 16.0, 19.7, 40.0] {
            assert_shrunk(&filters, columns, &probe);
            let shrunk = filters[0].shrunk_to(columns);
            assert!(keys.iter().all(|&hash| shrunk.may_contain_hash(hash)), "{whole}, {columns}");
        }
        let mut same = filters[0].clone();
        for columns in [f64::NAN, f64::INFINITY, same.columns(), whole + 1.0] {
            same.shrink_to(columns);
            assert!(same.shape == filters[0].shape && same.groups == filters[0].groups);
            assert_eq!(same.memory_bytes_at(columns), same.memory_bytes());
        }
        // Shrinking step by step equals shrinking at once.
        for columns in [30.0, 17.5, 16.0, 9.25, 8.0, 3.0] {
            same.shrink_to(columns);
            let once = filters[0].shrunk_to(columns);
            assert!(same.shape == once.shape && same.groups == once.groups, "{whole}, {columns}");
        }
    }
}

/// The columns of a shrunk filter equal those of a filter built with fewer columns.
#[cfg_attr(miri, ignore = "long loops")]
#[test]
fn a_shrunk_filter_equals_one_built_with_fewer_columns() {
    // Contradictions between keys depend on the columns. With few keys and many columns random
    // matches practically never occur, so the layers are the same.
    let keys = hashes(13, 3_000);
    let whole = Ribbon::build(&keys, 32.0);
    for columns in [31.0, 28.5, 24.0, 20.25] {
        let (shrunk, built) = (whole.shrunk_to(columns), Ribbon::build(&keys, columns));
        assert!(shrunk.shape == built.shape, "{columns} columns");
        assert!(shrunk.groups == built.groups, "{columns} columns");
        assert!(shrunk.thresholds == built.thresholds, "{columns} columns");
        assert_eq!(shrunk.expected_fpr().to_bits(), built.expected_fpr().to_bits());
        assert_eq!(shrunk.to_payload(), built.to_payload());
    }
}
