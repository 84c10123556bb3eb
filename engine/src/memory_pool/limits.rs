//! Divides a ceiling among the stores of a pool, for memtables and for filters. Pure.
//!
//! Each store has a reserved floor. Above the floors stores take what they use, and a store may
//! take all that is left below the ceiling.

/// Claim of one store, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// Limit of the store if it is alone; 0 for a closed store.
    pub(super) ceiling: u64,
    pub(super) used: u64,
}

#[derive(Debug)]
pub(super) struct Limits {
    ceiling: u64,
    floor: u64,
    /// Use of all stores, or their floors if larger.
    claimed: u64,
}

impl Limits {
    pub(super) fn new(claims: impl Iterator<Item = Claim> + Clone, stores: usize) -> Self {
        let ceiling = claims.clone().map(|claim| claim.ceiling).max().unwrap_or(0);
        let floor = ceiling / (2 * stores.max(1) as u64);
        let mut limits = Self { ceiling, floor, claimed: 0 };
        limits.claimed = claims.fold(0, |sum, claim| sum.saturating_add(limits.claimed_by(claim)));
        limits
    }

    /// Returns the bytes reserved for a store with this claim.
    pub(super) fn floor(&self, claim: Claim) -> u64 {
        self.floor.min(claim.ceiling)
    }

    pub(super) fn limit(&self, claim: Claim) -> u64 {
        let of_others = self.claimed - self.claimed_by(claim).min(self.claimed);
        let left = self.ceiling.saturating_sub(of_others);
        left.max(self.floor).min(claim.ceiling)
    }

    fn claimed_by(&self, claim: Claim) -> u64 {
        claim.used.max(self.floor(claim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(claims: &[(u64, u64)]) -> Vec<u64> {
        let claims: Vec<_> =
            claims.iter().map(|&(ceiling, used)| Claim { ceiling, used }).collect();
        let stores = claims.iter().filter(|claim| claim.ceiling > 0).count();
        let limits = Limits::new(claims.iter().copied(), stores);
        claims.iter().map(|&claim| limits.limit(claim)).collect()
    }

    #[test]
    fn a_store_may_take_what_others_leave() {
        type Case<'t> = (&'t str, &'t [(u64, u64)], &'t [u64]);
        let cases: [Case<'_>; 9] = [
            ("alone", &[(64, 0)], &[64]),
            ("alone and over it", &[(64, 90)], &[64]),
            ("two idle ones", &[(64, 0), (64, 0)], &[48, 48]),
            ("one uses all", &[(64, 48), (64, 0)], &[48, 16]),
            ("both use half", &[(64, 32), (64, 32)], &[32, 32]),
            ("one was alone", &[(64, 64), (64, 0)], &[48, 16]),
            ("a small one that was set", &[(64, 0), (8, 0)], &[56, 8]),
            ("one is closed and still has memory", &[(64, 0), (0, 20)], &[44, 0]),
            ("none at all", &[(0, 0), (64, 64)], &[0, 64]),
        ];
        for (name, claims, want) in cases {
            assert_eq!(limits(claims), want, "{name}");
        }
    }

    /// Stores that grow one after another to their limits never exceed the ceiling together.
    #[test]
    fn the_sum_stays_below_the_ceiling() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for stores in 1..9 {
            let mut claims = vec![(1_600, 0); stores];
            for _ in 0..2_000 {
                let at = random(stores as u64) as usize;
                let limit = limits(&claims)[at];
                claims[at].1 = if random(3) == 0 { random(limit + 1) } else { limit };
                let used: u64 = claims.iter().map(|(_, used)| used).sum();
                assert!(used <= 1_600, "{claims:?}");
                assert!(limit >= 1_600 / (2 * stores as u64), "{claims:?}");
            }
        }
    }
}
