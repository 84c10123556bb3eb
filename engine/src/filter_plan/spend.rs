//! The best division of bits among sorted runs.

use std::sync::LazyLock;

use sievedb_filter::{FilterKind, params::BITS_PER_KEY_MAX};

/// Most bits per key of a filter.
const STEPS: usize = BITS_PER_KEY_MAX as usize;

/// A sorted run to spend bits on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) keys: u64,
    pub(crate) kind: FilterKind,
}

/// Bits per key for each run, so that the rates of the runs add up to the least, when all keys
/// together may take `bits`.
///
/// A bit a key more goes where it saves the most reads for the memory, until the bits are spent. As
/// each one saves less than the one before, nothing is gained by looking further ahead. The last one
/// may be a fraction.
pub(crate) fn spend(shares: &[Share], bits: f64) -> Vec<f64> {
    let mut steps = vec![0_usize; shares.len()];
    let mut left = bits;
    loop {
        let gain = |i: usize| {
            let saved = saving(shares[i].kind, steps[i])?;
            Some(saved / shares[i].keys as f64)
        };
        let best = (0..shares.len())
            .filter(|&i| shares[i].keys > 0)
            .filter_map(|i| gain(i).map(|gain| (gain, i)))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let mut bits: Vec<f64> = steps.iter().map(|&steps| steps as f64).collect();
        let Some((_, i)) = best else { return bits };
        let price = shares[i].keys as f64;
        if price > left {
            bits[i] += left / price;
            return bits;
        }
        left -= price;
        steps[i] += 1;
    }
}

/// How much of a rate the next bit saves after `bits` of them; `None` if there is no next one.
fn saving(kind: FilterKind, bits: usize) -> Option<f64> {
    static BLOOM: LazyLock<Vec<f64>> = LazyLock::new(|| savings(FilterKind::BlockedBloom));
    static RIBBON: LazyLock<Vec<f64>> = LazyLock::new(|| savings(FilterKind::Ribbon));
    let savings = if kind == FilterKind::Ribbon { &*RIBBON } else { &*BLOOM };
    savings.get(bits).copied().filter(|&saved| saved > 0.0)
}

fn savings(kind: FilterKind) -> Vec<f64> {
    let rate = |bits: usize| match bits {
        0 => 1.0,
        _ => kind.expected_fpr(bits as f64).expect("tables have filters of this kind"),
    };
    (0..STEPS).map(|bits| rate(bits) - rate(bits + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without this, spending on the best next bit would not be the best in the end.
    #[test]
    fn each_bit_saves_less_than_the_one_before() {
        for kind in [FilterKind::BlockedBloom, FilterKind::Ribbon] {
            let savings: Vec<f64> = (0..STEPS).map_while(|bits| saving(kind, bits)).collect();
            assert!(savings.len() >= 32, "{kind:?}: {} bits", savings.len());
            for [one, next] in savings.array_windows() {
                assert!(next < one, "{kind:?}: {one}, then {next}");
            }
        }
    }

    #[test]
    fn all_is_spent_and_no_more() {
        let ribbon = |keys| Share { keys, kind: FilterKind::Ribbon };
        let bloom = |keys| Share { keys, kind: FilterKind::BlockedBloom };
        let cases: [(&str, &[Share]); 4] = [
            ("one run", &[ribbon(1_000_000)]),
            ("levels", &[bloom(10_000), ribbon(90_000), ribbon(900_000)]),
            ("equal runs", &[ribbon(5_000); 3]),
            ("an empty run", &[ribbon(0), ribbon(7)]),
        ];
        for (name, shares) in cases {
            let keys: u64 = shares.iter().map(|share| share.keys).sum();
            for average in [0.0, 0.3, 1.0, 5.0, 9.99, 10.0, 24.0] {
                let bits = spend(shares, average * keys as f64);
                let spent: f64 = shares.iter().zip(&bits).map(|(s, b)| s.keys as f64 * b).sum();
                let most = shares.iter().map(|s| s.keys as f64).fold(0.0, f64::max);
                let want = average * keys as f64;
                assert!((spent - want).abs() <= 1e-6 * most, "{name}, {average}: {spent}, {want}");
            }
        }
    }

    /// Moving a little from any run to any other one makes it worse.
    #[test]
    fn no_other_division_is_better() {
        let kinds = [FilterKind::BlockedBloom, FilterKind::Ribbon, FilterKind::Ribbon];
        let shares: Vec<Share> = [3_000, 40_000, 400_000]
            .into_iter()
            .zip(kinds)
            .map(|(keys, kind)| Share { keys, kind })
            .collect();
        let rate =
            |bits: &[f64]| -> f64 {
                shares
                    .iter()
                    .zip(bits)
                    .map(|(share, &bits)| {
                        if bits <= 0.0 {
                            1.0
                        } else {
                            share.kind.expected_fpr(bits).expect("known")
                        }
                    })
                    .sum()
            };
        for average in [2.0, 5.0, 10.0] {
            let best = spend(&shares, average * 443_000.0);
            for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
                let mut other = best.clone();
                let moved = 0.5 * shares[from].keys as f64;
                other[from] -= 0.5;
                other[to] += moved / shares[to].keys as f64;
                if other[from] > 0.0 && other[to] <= 32.0 {
                    assert!(rate(&other) > rate(&best) * 0.98, "{average}: {best:?}, {other:?}");
                }
            }
        }
    }
}
