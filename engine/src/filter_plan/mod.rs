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
/// For [`FilterPolicyKind::Auto`] it is that of the best division. But bits that older tables
/// already took cannot be divided again: a run gets more than the average only from what they left.
pub(crate) fn choose<'a>(
    policy: &FilterPolicy,
    tables: impl IntoIterator<Item = &'a TableMeta>,
    place: TablePlace,
    new_keys: u64,
) -> FilterChoice {
    let mut runs: BTreeMap<(u8, u64), RunFilters> = BTreeMap::new();
    for table in tables {
        let run = runs.entry((table.level, table.run)).or_default();
        run.keys += table.entries;
        run.bits += table.filter.map_or(0, |filter| 8 * filter.bytes);
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
        FilterPolicyKind::Auto => {
            let keys: Vec<u64> =
                others.iter().map(|other| other.keys).chain([run.keys + new_keys]).collect();
            let total = keys.iter().sum::<u64>() as f64 * bits;
            let FilterChoice { kind, bits_per_key } =
                plan(&keys, bits).pop().expect("a choice for each run");
            let spent = others.iter().map(|other| other.bits).sum::<u64>() + run.bits;
            let left = (total - spent as f64) / new_keys.max(1) as f64;
            rounded(kind, bits_per_key.min(left.max(bits)))
        }
    }
}

/// The best division of `bits` bits per key on average among runs of so many keys.
fn plan(keys: &[u64], bits: f64) -> Vec<FilterChoice> {
    let total = keys.iter().sum::<u64>() as f64;
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
        use FilterPolicyKind::{Auto, Bloom, None, Ribbon};
        let bloom = |bits_per_key| FilterChoice { kind: FilterKind::BlockedBloom, bits_per_key };
        let ribbon = |bits_per_key| FilterChoice { kind: FilterKind::Ribbon, bits_per_key };
        let cases = [
            ("none", None, 10.0, 1_000_000, bloom(0.0)),
            ("no bits", Auto, 0.0, 1_000_000, bloom(0.0)),
            ("Bloom", Bloom, 9.9, 1_000_000, bloom(9.9)),
            ("Ribbon", Ribbon, 9.9, 10, ribbon(9.9)),
            ("less than a column", Ribbon, 0.5, 1_000_000, bloom(0.5)),
            ("Auto, few keys", Auto, 10.0, 1_999, bloom(10.0)),
            ("Auto, many keys", Auto, 10.0, 2_000, ribbon(10.0)),
            ("Auto, less than a column", Auto, 0.5, 2_000, bloom(0.5)),
            ("Auto, nothing to hold", Auto, 10.0, 0, bloom(0.0)),
        ];
        for (name, kind, bits, keys, want) in cases {
            let policy = FilterPolicy::new(kind).bits_per_key(bits);
            assert_eq!(choose_among(&policy, &[], RunFilters::default(), keys), want, "{name}");
        }
    }

    /// A small run beside a large one takes bits that the large one left.
    #[test]
    fn a_small_run_gets_more() {
        let policy = FilterPolicy::default();
        let large = choose_among(
            &policy,
            &[RunFilters { keys: 100_000, bits: 1_600_000 }],
            RunFilters::default(),
            900_000,
        );
        assert!((9.0..9.8).contains(&large.bits_per_key), "{large:?}");
        let bits = (large.bits_per_key * 900_000.0) as u64;
        let beside = [RunFilters { keys: 900_000, bits }];
        let small = choose_among(&policy, &beside, RunFilters::default(), 100_000);
        assert!(small.bits_per_key > 12.5, "{small:?}");
    }
}
