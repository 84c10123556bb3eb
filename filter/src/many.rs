//! One key against many filters: that of a lookup, which asks the filters of several tables.
//!
//! The plain loop waits for the memory of one filter before it asks the next wherever the answer
//! decides a branch. Here the loads of all large filters are in flight before the first is tested.
//! Eight filters of ten million keys each took 21 ns a Bloom filter instead of 28, and 50 ns a
//! ribbon instead of 64. What all ribbons make of the hash alike is found once, which pays for
//! looking which filters are large. Filters of one type need not be told apart: pass them as that
//! type, not as [`TableFilter`], if all are.
//!
//! ```
//! use sievedb_filter::{BlockedBloom, TableFilter, many};
//!
//! let tables: [&[u64]; 3] = [&[1, 2], &[3], &[2, 4]]; // Hashes, newest table first.
//! let filters = tables.map(|hashes| TableFilter::BlockedBloom(BlockedBloom::build(hashes, 30.0)));
//! assert_eq!(many::may_contain_in(&filters.each_ref(), 2), 0b101);
//! let newest = many::may_contain_each(&filters, 2).position(|may_contain| may_contain);
//! assert_eq!(newest, Some(0));
//! ```

use crate::blocked_bloom::BlockedBloom;
pub use crate::ribbon::Asked;
use crate::ribbon::{Mixed, Ribbon};
use crate::table_filter::TableFilter;

/// Most filters of [`may_contain_in`]: the bits of its answer.
pub const FILTERS_MAX: usize = u64::BITS as usize;

/// Fewest bytes of a filter that is loaded before it is tested; for a ribbon, those of eight
/// columns.
///
/// A smaller one is in the caches next to the core if it is asked often, and to prefetch it too
/// costs 0.2 ns a Bloom filter and 2 ns a ribbon. Whether a filter is so large is seen from nothing
/// but what the test will need: key counts lie elsewhere.
const LARGE_BYTES: usize = 256 << 10;

/// A filter that is asked beside others: any [`TableFilter`], or one of its two main kinds by
/// itself.
pub trait AmongMany: sealed::Sealed {
    /// Starts to load what [`may_contain_asked`](Self::may_contain_asked) will read, unless the
    /// filter is so small that it is in the caches next to the core.
    fn prefetch_asked(&self, asked: Asked);

    /// What its `may_contain_hash` says.
    fn may_contain_asked(&self, asked: Asked) -> bool;
}

mod sealed {
    /// Only filters of this crate: others have nothing to share.
    pub trait Sealed {}
    impl Sealed for crate::BlockedBloom {}
    impl Sealed for crate::Ribbon {}
    impl Sealed for crate::TableFilter {}
}

/// Which of `filters` may contain `hash`: bit `i` is what filter `i` says.
///
/// # Panics
///
/// If there are more than [`FILTERS_MAX`] filters.
#[inline]
#[must_use]
pub fn may_contain_in<F: AmongMany>(filters: &[&F], hash: u64) -> u64 {
    assert!(filters.len() <= FILTERS_MAX, "{} filters", filters.len());
    let asked = Asked::new(hash);
    // The last one first: so each answer moves the others up, by a bit.
    for filter in filters.iter().rev() {
        filter.prefetch_asked(asked);
    }
    let answers = filters.iter().rev().map(|filter| filter.may_contain_asked(asked));
    answers.fold(0, |mask, answer| mask << 1 | u64::from(answer))
}

/// What each of `filters` says of `hash`, in their order.
///
/// Starts the loads of all large filters at once, and tests a filter when its answer is asked for:
/// a caller that found its key stops there. Allocates nothing. Goes through `filters` twice.
pub fn may_contain_each<'a, F, I>(filters: I, hash: u64) -> impl Iterator<Item = bool>
where
    F: AmongMany + 'a,
    I: IntoIterator<Item = &'a F> + Clone,
{
    let asked = Asked::new(hash);
    for filter in filters.clone() {
        filter.prefetch_asked(asked);
    }
    filters.into_iter().map(move |filter| filter.may_contain_asked(asked))
}

/// What [`may_contain_hash`](TableFilter::may_contain_hash) of `filter` says.
///
/// For callers that find their filters one by one: [`prefetch`] each where it is found, then ask.
#[inline]
#[must_use]
pub fn may_contain(filter: &TableFilter, asked: Asked) -> bool {
    filter.may_contain_asked(asked)
}

/// Starts to load what [`may_contain`] will read, unless the filter is so small that it is in the
/// caches next to the core.
#[inline]
pub fn prefetch(filter: &TableFilter, asked: Asked) {
    filter.prefetch_asked(asked);
}

impl AmongMany for BlockedBloom {
    #[inline(always)]
    fn prefetch_asked(&self, asked: Asked) {
        if self.memory_bytes() >= LARGE_BYTES {
            self.prefetch(asked.hash);
        }
    }

    #[inline(always)]
    fn may_contain_asked(&self, asked: Asked) -> bool {
        self.may_contain_hash(asked.hash)
    }
}

impl AmongMany for Ribbon {
    /// Not the place of a bumped key: to look at its thresholds, and to hand the place to the test,
    /// was tried. A miss with three tables in the caches near the core took 62 instead of 52 ns,
    /// and one among 10 million keys no less: a core begins with the test of a bumped key while it
    /// waits for the others.
    #[inline(always)]
    fn prefetch_asked(&self, asked: Asked) {
        if self.first_starts() >= LARGE_BYTES as u64 {
            prefetch_ribbon(self, asked.hash, asked.mixed);
        }
    }

    #[inline(always)]
    fn may_contain_asked(&self, asked: Asked) -> bool {
        self.may_contain_mixed(asked)
    }
}

/// Not inlined: so the loop around it is, into those of the callers. In pieces, because those
/// travel in registers.
#[inline(never)]
fn prefetch_ribbon(ribbon: &Ribbon, hash: u64, mixed: Mixed) {
    ribbon.prefetch_mixed(Asked { hash, mixed });
}

impl AmongMany for TableFilter {
    #[inline(always)]
    fn prefetch_asked(&self, asked: Asked) {
        match self {
            Self::BlockedBloom(filter) => filter.prefetch_asked(asked),
            Self::Ribbon(filter) => filter.prefetch_asked(asked),
            // A jump over a table of all kinds would cost the others more than a call costs these.
            Self::BinaryFuse8(_) | Self::BinaryFuse16(_) => prefetch_fuse(self, asked.hash),
        }
    }

    #[inline(always)]
    fn may_contain_asked(&self, asked: Asked) -> bool {
        match self {
            Self::BlockedBloom(filter) => filter.may_contain_asked(asked),
            Self::Ribbon(filter) => filter.may_contain_asked(asked),
            Self::BinaryFuse8(_) | Self::BinaryFuse16(_) => self.fuse_may_contain(asked.hash),
        }
    }
}

#[inline(never)]
fn prefetch_fuse(filter: &TableFilter, hash: u64) {
    if filter.memory_bytes() >= LARGE_BYTES {
        filter.prefetch(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(first: u64, n: u64) -> Vec<u64> {
        (first..first + n).map(|i| crate::key_hash(&i.to_le_bytes(), 1)).collect()
    }

    /// Small and large filters of both kinds, which share some of their keys.
    fn filters(count: u64) -> Vec<TableFilter> {
        let build = |i: u64| {
            let keys = if i == 1 || i == 2 { 600_000 } else { 50 * i };
            let keys = hashes(40 * i, keys);
            match i % 2 {
                0 => TableFilter::BlockedBloom(BlockedBloom::build(&keys, 4.0)),
                _ => TableFilter::Ribbon(Ribbon::build(&keys, 3.5)),
            }
        };
        (0..count).map(build).collect()
    }

    #[test]
    fn answers_are_those_of_the_plain_loop() {
        for count in [0, 1, 3, 64] {
            let filters = filters(count);
            let borrowed: Vec<&TableFilter> = filters.iter().collect();
            for hash in hashes(0, 3_000).into_iter().chain(hashes(1 << 40, 3_000)) {
                let want: Vec<bool> = filters.iter().map(|f| f.may_contain_hash(hash)).collect();
                let mask = may_contain_in(&borrowed, hash);
                let found: Vec<bool> = (0..count).map(|i| mask >> i & 1 == 1).collect();
                assert_eq!(found, want, "{count} filters");
                assert!(may_contain_each(&filters, hash).eq(want), "{count} filters, one by one");
            }
        }
    }

    #[test]
    fn filters_of_one_type_answer_alike() {
        let sets: Vec<Vec<u64>> = (0..5).map(|i| hashes(40 * i, 50 + 10_000 * i)).collect();
        let blooms: Vec<_> = sets.iter().map(|keys| BlockedBloom::build(keys, 4.0)).collect();
        let ribbons: Vec<_> = sets.iter().map(|keys| Ribbon::build(keys, 3.5)).collect();
        let borrowed_blooms: Vec<&BlockedBloom> = blooms.iter().collect();
        let borrowed_ribbons: Vec<&Ribbon> = ribbons.iter().collect();
        for hash in hashes(0, 3_000) {
            let mask = may_contain_in(&borrowed_blooms, hash);
            let want = blooms.iter().map(|filter| filter.may_contain_hash(hash));
            assert!((0..5).map(|i| mask >> i & 1 == 1).eq(want));
            let mask = may_contain_in(&borrowed_ribbons, hash);
            let want = ribbons.iter().map(|filter| filter.may_contain_hash(hash));
            assert!((0..5).map(|i| mask >> i & 1 == 1).eq(want.clone()));
            assert!(may_contain_each(&ribbons, hash).eq(want));
        }
    }

    #[test]
    #[should_panic = "65 filters"]
    fn more_filters_than_bits_are_refused() {
        let empty = TableFilter::BlockedBloom(BlockedBloom::build(&[], 1.0));
        let _ = may_contain_in(&[&empty; FILTERS_MAX + 1], 1);
    }
}
