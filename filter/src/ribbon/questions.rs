//! The questions of a path of the processor, around its own `matches(group, place, fingerprint)`.
//!
//! A macro: only functions with the path's own target features inline into each other.

/// Gives `$path`, the proof that the processor has `$features`, its questions.
macro_rules! questions {
    ($path:ident, $features:literal) => {
        impl $path {
            #[inline]
            pub(crate) fn may_contain_hash(self, ribbon: &Ribbon, hash: u64) -> bool {
                // SAFETY: `detect` alone makes a proof, and only where the CPU has the features.
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
                answers: &mut [bool],
            ) {
                // SAFETY: as above.
                unsafe { may_contain_hashes(ribbon, hashes, answers) }
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
                |ribbon, hash| of_bumped(ribbon, hash),
                |ribbon, TurnedRow { start, coefficients, fingerprint }| {
                    of_many(ribbon, start, coefficients, fingerprint)
                },
            )
        }

        /// The row comes in pieces, because those travel in registers.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn of_many(ribbon: &Ribbon, start: u64, coefficients: u64, fingerprint: u32) -> bool {
            let place = Place::new(TurnedRow { start, coefficients, fingerprint });
            test_all(ribbon, &place, |group, place, print| matches(group, place, print))
        }

        #[inline(never)]
        #[target_feature(enable = $features)]
        fn of_bumped(ribbon: &Ribbon, hash: u64) -> bool {
            let place = Place::of_bumped(ribbon, hash);
            test_all(ribbon, &place, |group, place, print| matches(group, place, print))
        }

        #[target_feature(enable = $features)]
        fn may_contain_hashes(ribbon: &Ribbon, hashes: &[u64], answers: &mut [bool]) {
            test_batch(ribbon, hashes, answers, |group, place, print| matches(group, place, print));
        }
    };
}

pub(super) use questions;
