//! One key against many filters: that of a lookup, which asks the filters of several tables.
//!
//! The plain loop waits for the memory of one filter before it asks the next wherever the answer
//! decides a branch. Here the loads of all large filters are under way before the first is tested.
//! Eight filters of ten million keys each took 21 ns a Bloom filter instead of 28, and 50 ns a ribbon
//! instead of 64. In the caches next to the core, with ten thousand keys each, it costs as much as a plain
//! loop over the same [`TableFilter`]s: what all ribbons make of the hash alike is found once, which takes
//! 0.5 ns off each and so pays for looking which filters are large. A plain loop over filters of one type
//! saves telling the kinds apart, and is faster there: 1.9 ns a Bloom filter instead of 3.2, 5.5 a ribbon
//! instead of 6.4.
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

pub use crate::ribbon::Asked;
use crate::table_filter::TableFilter;

/// Most filters of [`may_contain_in`]: the bits of its answer.
pub const FILTERS_MAX: usize = u64::BITS as usize;

/// Fewest bytes of a filter that is loaded before it is tested; for a ribbon, those of eight columns.
///
/// A smaller one is in the caches next to the core if it is asked often, and to prefetch it too costs
/// 0.2 ns a Bloom filter and 2 ns a ribbon.
const LARGE_BYTES: usize = 256 << 10;

/// Which of `filters` may contain `hash`: bit `i` is what
/// [`may_contain_hash`](TableFilter::may_contain_hash) of filter `i` says.
///
/// # Panics
///
/// If there are more than [`FILTERS_MAX`] filters.
#[must_use]
pub fn may_contain_in(filters: &[&TableFilter], hash: u64) -> u64 {
    assert!(filters.len() <= FILTERS_MAX, "{} filters", filters.len());
    let asked = Asked::new(hash);
    prefetch_all(filters.iter().copied(), asked);
    let answers = filters.iter().map(|filter| filter.may_contain_asked(asked));
    answers.enumerate().fold(0, |mask, (i, answer)| mask | u64::from(answer) << i)
}

/// What [`may_contain_hash`](TableFilter::may_contain_hash) of each of `filters` says, in their order.
///
/// Starts the loads of all large filters at once, and tests a filter when its answer is asked for: a caller that found
/// its key stops there. Allocates nothing. Goes through `filters` twice.
pub fn may_contain_each<'a, F>(filters: F, hash: u64) -> impl Iterator<Item = bool>
where
    F: IntoIterator<Item = &'a TableFilter> + Clone,
{
    let asked = Asked::new(hash);
    prefetch_all(filters.clone(), asked);
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

/// Starts to load what [`may_contain`] will read, unless the filter is so small that it is in the caches
/// next to the core.
#[inline]
pub fn prefetch(filter: &TableFilter, asked: Asked) {
    // Not the place of a bumped key: to look at its thresholds here, and to hand the place to the test, was
    // tried. A miss with three tables in the caches near the core took 62 instead of 52 ns, and one among 10
    // million keys no less: a core begins with the test of a bumped key while it waits for the others.
    //
    // From nothing but what the test will need: key counts lie elsewhere.
    let is_large = match filter {
        TableFilter::BlockedBloom(filter) => filter.memory_bytes() >= LARGE_BYTES,
        TableFilter::Ribbon(filter) => filter.first_starts() >= LARGE_BYTES as u64,
        // A jump over a table of all kinds would cost the others more than a call costs these.
        TableFilter::BinaryFuse8(_) | TableFilter::BinaryFuse16(_) => true,
    };
    if is_large {
        prefetch_large(filter, &asked);
    }
}

fn prefetch_all<'a>(filters: impl IntoIterator<Item = &'a TableFilter>, asked: Asked) {
    for filter in filters {
        prefetch(filter, asked);
    }
}

/// Not inlined: so the loop above is, into those of the callers.
#[inline(never)]
fn prefetch_large(filter: &TableFilter, asked: &Asked) {
    match filter {
        TableFilter::BinaryFuse8(_) | TableFilter::BinaryFuse16(_)
            if filter.memory_bytes() < LARGE_BYTES => {}
        TableFilter::Ribbon(ribbon) => ribbon.prefetch_asked(*asked),
        _ => filter.prefetch(asked.hash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockedBloom, Ribbon};

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
    #[should_panic = "65 filters"]
    fn more_filters_than_bits_are_refused() {
        let empty = TableFilter::BlockedBloom(BlockedBloom::build(&[], 1.0));
        let _ = may_contain_in(&[&empty; FILTERS_MAX + 1], 1);
    }
}
