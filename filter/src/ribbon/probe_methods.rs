//! Probe methods of a SIMD path, around its own `matches(group, place, fingerprint)`.
//!
//! A macro, because only functions with the same target features inline into each other.

/// Defines the probe methods of `$path`, the proof that the CPU has `$features`.
macro_rules! probe_methods {
    ($path:ident, $features:literal) => {
        impl $path {
            #[inline]
            pub(crate) fn may_contain_hash(self, ribbon: &Ribbon, hash: u64) -> bool {
                // SAFETY: only `detect` creates the proof, and only if the CPU has the features.
                unsafe { may_contain_hash(ribbon, hash) }
            }

            #[inline]
            pub(crate) fn may_contain_mixed(
                self,
                ribbon: &Ribbon,
                hash: u64,
                mixed: Mixed,
            ) -> bool {
                // SAFETY: as above.
                unsafe { may_contain_mixed(ribbon, hash, mixed) }
            }

            #[inline]
            pub(crate) fn may_contain_hashes(
                self,
                ribbon: &Ribbon,
                hashes: &[u64],
                results: &mut [bool],
            ) {
                // SAFETY: as above.
                unsafe { may_contain_hashes(ribbon, hashes, results) }
            }
        }

        #[target_feature(enable = $features)]
        fn may_contain_hash(ribbon: &Ribbon, hash: u64) -> bool {
            may_contain_mixed(ribbon, hash, Mixed::new(hash, ribbon.front.seed))
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn may_contain_mixed(ribbon: &Ribbon, hash: u64, mixed: Mixed) -> bool {
            test_one(
                ribbon,
                hash,
                mixed,
                |group, place, print| matches(group, place, print),
                |ribbon, hash| probe_bumped(ribbon, hash),
                |ribbon, TurnedRow { start, coefficients, fingerprint }| {
                    probe_groups(ribbon, start, coefficients, fingerprint)
                },
            )
        }

        /// Takes the parts of the row, which are passed in registers.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn probe_groups(ribbon: &Ribbon, start: u64, coefficients: u64, fingerprint: u32) -> bool {
            let place = Place::new(TurnedRow { start, coefficients, fingerprint });
            test_all(ribbon, &place, |group, place, print| matches(group, place, print))
        }

        #[inline(never)]
        #[target_feature(enable = $features)]
        fn probe_bumped(ribbon: &Ribbon, hash: u64) -> bool {
            let place = Place::bumped(ribbon, hash);
            test_all(ribbon, &place, |group, place, print| matches(group, place, print))
        }

        #[target_feature(enable = $features)]
        fn may_contain_hashes(ribbon: &Ribbon, hashes: &[u64], results: &mut [bool]) {
            test_batch(ribbon, hashes, results, |group, place, print| matches(group, place, print));
        }
    };
}

pub(super) use probe_methods;
