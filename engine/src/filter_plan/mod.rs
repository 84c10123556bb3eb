//! Which filter a new table gets: its kind, and its bits per key.
//!
//! A lookup of an absent key asks one table of every sorted run, so it reads in vain as often as
//! the rates of the runs add up to. A bit a key costs a run as many bits as it has keys, and saves
//! half of its rate: small runs take many bits a key, the largest one gives some up. At the best of
//! all divisions the rate of a run is proportional to its size (Dayan, Athanassoulis and Idreos,
//! "Monkey: Optimal Navigable Key-Value Store", SIGMOD 2017).
//!
//! Pure functions: the store says how many keys and filter bits its runs have.

mod spend;

use std::collections::BTreeMap;

use sievedb_filter::FilterKind;
use spend::{Share, spend};

use crate::{
    filter_policy::{FilterChoice, FilterPolicy, FilterPolicyKind},
    table::{TableMeta, store::TablePlace},
};

/// Below so many keys a Bloom filter: a ribbon has 64 slots at least, and layers.
const RIBBON_KEYS_MIN: u64 = 2_000;

/// A run with less than this share of the keys gets Bloom filters. What they take more is a small
/// part of all bits, and they are built and asked in a quarter of the time.
const RIBBON_SHARE_MIN: f64 = 0.01;

/// The largest run is planned as if the others had at least this part of its keys together: what
/// comes after it is small, wants many bits a key, and finds them only if they are left. That is the
/// size of the levels above the last one of a leveled tree.
const COMING: u64 = 10;

/// The part of the average that the largest run has in any case.
const COMING_LEAVES: f64 = 0.9;

/// What the planner knows of a sorted run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunFilters {
    /// Entries, which are hardly more than the keys.
    keys: u64,
    /// Of its filters, all together.
    bits: u64,
}

/// The filter of new tables at `place` with at most `new_keys` keys.
///
/// `tables` are those of the keyspace that stay, at their present levels and runs.
///
/// For [`FilterPolicyKind::Auto`] it is that of the best division. Bits that older tables already took
/// cannot be divided again, though: a run gets more than the average only from what they left.
pub(crate) fn choose<'a>(
    policy: &FilterPolicy,
    tables: impl IntoIterator<Item = &'a TableMeta>,
    place: TablePlace,
    new_keys: u64,
) -> FilterChoice {
    let mut runs: BTreeMap<(u8, u64), RunFilters> = BTreeMap::new();
    for table in tables {
        let run = runs.entry((table.level, table.run)).or_default();
        // A manifest may say anything of a filter that cannot be used.
        run.keys = run.keys.saturating_add(table.entries);
        let bytes = table.filter.map_or(0, |filter| filter.bytes);
        run.bits = run.bits.saturating_add(bytes.saturating_mul(8));
    }
    let run = runs.remove(&(place.level, place.run)).unwrap_or_default();
    let others: Vec<RunFilters> = runs.into_values().collect();
    choose_among(policy, &others, run, new_keys)
}

/// The filter of tables that bring `new_keys` keys to the sorted run `run`, beside `others`.
fn choose_among(
    policy: &FilterPolicy,
    others: &[RunFilters],
    run: RunFilters,
    new_keys: u64,
) -> FilterChoice {
    let bits = policy.bits_per_key;
    match policy.kind {
        FilterPolicyKind::None => FilterChoice::NONE,
        _ if bits == 0.0 => FilterChoice::NONE,
        FilterPolicyKind::Bloom => {
            FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key: bits }
        }
        FilterPolicyKind::Ribbon => rounded(FilterKind::Ribbon, bits),
        FilterPolicyKind::Fuse => FilterChoice { kind: FilterKind::BinaryFuse, bits_per_key: bits },
        FilterPolicyKind::Auto => {
            let run_keys = run.keys.saturating_add(new_keys);
            let other_keys = others.iter().fold(0, |sum: u64, run| sum.saturating_add(run.keys));
            let total = other_keys.saturating_add(run_keys) as f64 * bits;
            let coming = (run_keys / COMING).saturating_sub(other_keys);
            let keys = others.iter().map(|other| other.keys).chain([coming, run_keys]);
            let keys: Vec<u64> = keys.collect();
            let FilterChoice { kind, bits_per_key: planned } =
                plan(&keys, bits).pop().expect("a choice for each run");
            // What may come must not take most of a few bits.
            let planned = if coming > 0 { planned.max(bits * COMING_LEAVES) } else { planned };
            let spent = others.iter().fold(run.bits, |sum, run| sum.saturating_add(run.bits));
            let left = (total - spent as f64) / new_keys.max(1) as f64;
            rounded(kind, planned.min(left.max(bits)))
        }
    }
}

/// The best division of `bits` bits per key on average among runs of so many keys.
fn plan(keys: &[u64], bits: f64) -> Vec<FilterChoice> {
    let total: f64 = keys.iter().map(|&keys| keys as f64).sum();
    let kind = |keys: u64| {
        let is_small = keys < RIBBON_KEYS_MIN || (keys as f64) < RIBBON_SHARE_MIN * total;
        if is_small { FilterKind::BlockedBloom } else { FilterKind::Ribbon }
    };
    let shares: Vec<Share> = keys.iter().map(|&keys| Share { keys, kind: kind(keys) }).collect();
    let divided = spend(&shares, bits * total);
    shares
        .iter()
        .zip(divided)
        .map(|(share, bits_per_key)| FilterChoice { kind: share.kind, bits_per_key })
        .collect()
}

/// In steps of a thousandth of a bit, as tables name it; a ribbon has a column at least.
fn rounded(kind: FilterKind, bits_per_key: f64) -> FilterChoice {
    let bits_per_key = (bits_per_key * 1e3).floor() / 1e3;
    if kind == FilterKind::Ribbon && bits_per_key < 1.0 {
        return FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key };
    }
    FilterChoice { kind, bits_per_key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FilterPlace;

    fn rate(choice: FilterChoice) -> f64 {
        match choice.bits_per_key {
            0.0 => 1.0,
            bits => choice.kind.expected_fpr(bits).expect("tables have filters of this kind"),
        }
    }

    /// `2^-(bits - H)`: what no filter can be better than, for runs with these shares of the keys.
    fn ideal(keys: &[u64], bits: f64) -> f64 {
        let total = keys.iter().sum::<u64>() as f64;
        let entropy: f64 =
            keys.iter().map(|&keys| keys as f64 / total).map(|share| -share * share.log2()).sum();
        (entropy - bits).exp2()
    }

    #[test]
    fn the_plan_is_near_the_ideal() {
        let cases: [(&str, &[u64], f64); 6] = [
            ("90, 9 and 1 %", &[9_000_000, 900_000, 100_000], 1.2),
            ("three equal runs", &[3_333_333; 3], 1.1),
            ("one run", &[1_000_000], 1.07),
            ("a leveled tree", &[20_000, 200_000, 2_000_000, 20_000_000], 1.2),
            ("many flushes", &[100_000; 12], 1.1),
            ("small runs", &[1_999; 4], 16.0),
        ];
        for (name, keys, worse) in cases {
            for bits in [5.0, 7.3, 10.0] {
                let found: f64 = plan(keys, bits).into_iter().map(rate).sum();
                let ideal = ideal(keys, bits);
                assert!(found >= ideal * 0.999, "{name}, {bits} bits: {found} beats {ideal}");
                assert!(found <= ideal * worse, "{name}, {bits} bits: {found}, {ideal} is ideal");
            }
        }
    }

    /// Ten runs of growing size, one table each, written from the smallest on and the other way.
    #[test]
    fn the_average_is_kept_whatever_the_order() {
        let sizes: Vec<u64> = (0..10).map(|i| 3_000 << i).collect();
        let policy = FilterPolicy::default();
        for reversed in [false, true] {
            let mut order = sizes.clone();
            if reversed {
                order.reverse();
            }
            let mut runs: Vec<RunFilters> = Vec::new();
            for &keys in &order {
                let choice = choose_among(&policy, &runs, RunFilters::default(), keys);
                let bits = (choice.bits_per_key * keys as f64) as u64;
                runs.push(RunFilters { keys, bits });
                let (keys, bits) =
                    runs.iter().fold((0, 0), |(k, b), run| (k + run.keys, b + run.bits));
                assert!(bits as f64 <= 10.0 * keys as f64, "{runs:?}");
                assert!(bits as f64 >= 8.0 * keys as f64, "{runs:?}");
            }
        }
    }

    /// After the policy was cut, new tables get what it says, not what the old ones left.
    #[test]
    fn old_tables_do_not_starve_new_ones() {
        let old = RunFilters { keys: 1_000_000, bits: 20_000_000 };
        let choice =
            choose_among(&FilterPolicy::default(), &[old], RunFilters::default(), 1_000_000);
        assert_eq!(choice, FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 10.0 });
    }

    #[test]
    fn each_policy_gives_what_it_says() {
        use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
        let bloom = |bits_per_key| FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key };
        let ribbon = |bits_per_key| FilterChoice { kind: FilterKind::Ribbon, bits_per_key };
        let cases = [
            ("none", None, 10.0, 1_000_000, bloom(0.0)),
            ("no bits", Auto, 0.0, 1_000_000, bloom(0.0)),
            ("Bloom", Bloom, 9.9, 1_000_000, bloom(9.9)),
            (
                "Fuse",
                Fuse,
                9.9,
                10,
                FilterChoice { kind: FilterKind::BinaryFuse, bits_per_key: 9.9 },
            ),
            ("Ribbon", Ribbon, 9.9, 10, ribbon(9.9)),
            ("less than a column", Ribbon, 0.5, 1_000_000, bloom(0.5)),
            ("Auto, less than a column", Auto, 0.5, 2_000, bloom(0.45)),
            ("Auto, nothing to hold", Auto, 10.0, 0, bloom(0.0)),
        ];
        for (name, kind, bits, keys, want) in cases {
            let policy = FilterPolicy::new(kind).bits_per_key(bits);
            assert_eq!(choose_among(&policy, &[], RunFilters::default(), keys), want, "{name}");
        }
    }

    #[test]
    fn few_keys_get_a_bloom_filter() {
        for (keys, want) in [(1_999, FilterKind::BlockedBloom), (2_000, FilterKind::Ribbon)] {
            let policy = FilterPolicy::default();
            assert_eq!(
                choose_among(&policy, &[], RunFilters::default(), keys).kind,
                want,
                "{keys}"
            );
        }
    }

    /// Also of counts that no table has: a manifest may hold any.
    #[test]
    fn every_choice_is_one_that_tables_take() {
        use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
        let counts = [0, 1, 2_000, 1 << 40, u64::MAX];
        let runs: Vec<RunFilters> =
            counts.iter().flat_map(|&keys| counts.map(|bits| RunFilters { keys, bits })).collect();
        for (kind, bits) in [Auto, Bloom, Ribbon, Fuse, None]
            .into_iter()
            .flat_map(|kind| [0.001, 0.999, 1.0, 10.0, 31.9995, 40.0].map(|bits| (kind, bits)))
        {
            let policy = FilterPolicy::new(kind).bits_per_key(bits);
            for &run in &runs {
                for others in [&[][..], &runs[..1], &runs[7..9], &runs] {
                    for new_keys in counts {
                        let found = choose_among(&policy, others, run, new_keys).bits_per_key;
                        let is_taken = found == 0.0 || (0.001..=40.0).contains(&found);
                        assert!(is_taken, "{kind:?}, {bits}: {found} for {new_keys} in {run:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn filters_of_any_length_are_counted() {
        let table = |bytes| TableMeta {
            id: 1,
            level: 0,
            run: 1,
            bytes: 1 << 20,
            checksum: 0,
            salt: 0,
            filter: Some(FilterPlace { file_id: 1, offset: 0, bytes, checksum: 0 }),
            prefix_filter: None,
            range_filter: None,
            global_sequence: None,
            smallest: (*b"a").into(),
            largest: (*b"z").into(),
            entries: 100,
            tombstones: 0,
            smallest_sequence: 1,
            largest_sequence: 100,
            oldest_expiry_ms: None,
            blob_files: Vec::new(),
        };
        let tables = [table(u64::MAX), table(100)];
        let place = TablePlace { level: 0, run: 7 };
        let choice = choose(&FilterPolicy::default(), &tables, place, 1_000_000);
        assert!((9.0..=10.0).contains(&choice.bits_per_key), "{choice:?}");
    }

    /// One large run, and then flushes: each finds the bits that the ones before left, and the sum of
    /// the rates stays near that of a plan made at the end.
    #[test]
    fn flushes_find_bits_that_the_largest_run_left() {
        let policy = FilterPolicy::default();
        let mut runs: Vec<RunFilters> = Vec::new();
        let mut rates = 0.0;
        for keys in [1_850_000, 75_000, 75_000] {
            let choice = choose_among(&policy, &runs, RunFilters::default(), keys);
            rates += rate(choice);
            runs.push(RunFilters { keys, bits: (choice.bits_per_key * keys as f64) as u64 });
        }
        let keys: Vec<u64> = runs.iter().map(|run| run.keys).collect();
        let best: f64 = plan(&keys, 10.0).into_iter().map(rate).sum();
        assert!(rates <= 1.1 * best, "{rates}, {best} is best: {runs:?}");
    }
}
