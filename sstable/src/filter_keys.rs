//! Keys of the filters of a new table.

use sievedb_filter::{
    BlockedBloom, PageVec, RangeFilter, TableFilter, key_hash,
    page_vec::SystemPages,
    range_filter::{POINTS_MAX, PointCollector},
};

use crate::{metadata::TableIdentity, options::TableOptions, prefix_extractor::PrefixExtractor};

/// The keys for a table's filters, collected while the table is written or read again.
///
/// Takes 8 bytes of memory per entry for each filter that the options select, except a point filter
/// with [`filter_keys_max`](TableOptions::filter_keys_max). An entry is a user key for point and
/// range filters, and a distinct prefix for prefix filters.
#[derive(Debug)]
pub struct FilterKeys {
    options: TableOptions,
    hash_seed: u64,
    salt: u64,
    points: Option<Points>,
    prefixes: Option<Prefixes>,
    ranges: Option<PointCollector>,
}

/// The user keys.
#[derive(Debug)]
enum Points {
    Hashes(PageVec<u64>),
    Filter(BlockedBloom),
}

/// A filter over prefixes.
#[derive(Debug)]
#[non_exhaustive]
pub struct PrefixFilter {
    /// The filter.
    pub filter: TableFilter,
    /// Seed of the hashes of prefixes.
    pub hash_seed: u64,
    /// Name of the prefix extractor.
    pub extractor: Box<str>,
}

/// Hashes of the distinct prefixes.
#[derive(Debug)]
struct Prefixes {
    extractor: PrefixExtractor,
    hash_seed: u64,
    last: Vec<u8>,
    hashes: PageVec<u64>,
}

impl FilterKeys {
    /// Returns an empty collection for the filters in `options`, of the table `identity`.
    #[must_use]
    pub fn new(options: &TableOptions, identity: &TableIdentity) -> Self {
        let TableIdentity { hash_seed, salt, .. } = *identity;
        let prefixes = options.prefix_extractor.as_ref().map(|extractor| Prefixes {
            hash_seed: extractor.hash_seed(hash_seed),
            extractor: extractor.clone(),
            last: Vec::new(),
            hashes: PageVec::new_in(SystemPages),
        });
        Self {
            options: options.clone(),
            hash_seed,
            salt,
            points: (options.filter_bits_per_key > 0.0).then(|| Points::new(options)),
            prefixes: prefixes.filter(|_| options.prefix_filter_bits_per_key > 0.0),
            ranges: (options.range_filter_bits_per_key > 0.0).then(PointCollector::new),
        }
    }

    /// Adds a user key. Keys must be in ascending order.
    pub fn add(&mut self, user_key: &[u8]) {
        if let Some(points) = &mut self.points {
            points.add(key_hash(user_key, self.hash_seed));
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(user_key);
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.push(user_key);
        }
    }

    /// Estimates the length of the filters, in bits.
    pub(crate) fn filter_bits(&self) -> f64 {
        let options = &self.options;
        let points = self.points.as_ref().map_or(0.0, |points| match points {
            Points::Hashes(hashes) => hashes.len() as f64 * options.filter_bits_per_key,
            Points::Filter(filter) => 8.0 * filter.memory_bytes() as f64,
        });
        let prefixes = self.prefixes.as_ref().map_or(0, |prefixes| prefixes.hashes.len()) as f64;
        let ranges = self.ranges.as_ref().map_or(0, PointCollector::len) as f64;
        points
            + prefixes * options.prefix_filter_bits_per_key
            + ranges * options.range_filter_bits_per_key
    }

    /// Builds the point filter and frees its hashes. Returns `None` if the options select no point
    /// filter or there is no key.
    ///
    /// Also returns `None` soon after `is_cancelled` returns `true`. From then on `is_cancelled`
    /// must always return `true`.
    pub fn build_points(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<TableFilter> {
        let TableOptions { filter_kind, filter_bits_per_key: bits, .. } = self.options;
        match self.points.take()? {
            Points::Hashes(hashes) if hashes.is_empty() => None,
            Points::Hashes(hashes) => {
                TableFilter::build_unless(filter_kind, &hashes, bits, is_cancelled)
            }
            Points::Filter(filter) => (filter.key_count() > 0).then(|| filter.into()),
        }
    }

    /// Builds the prefix filter and frees its hashes. Returns `None` if the options select no
    /// prefix filter, or after a cancellation as [`build_points`](Self::build_points).
    ///
    /// Without prefixes the filter is empty and excludes the table.
    pub fn build_prefixes(&mut self, is_cancelled: &dyn Fn() -> bool) -> Option<PrefixFilter> {
        let Prefixes { extractor, hash_seed, hashes, .. } = self.prefixes.take()?;
        let TableOptions { filter_kind, prefix_filter_bits_per_key: bits, .. } = self.options;
        let filter = TableFilter::build_unless(filter_kind, &hashes, bits, is_cancelled)?;
        Some(PrefixFilter { filter, hash_seed, extractor: extractor.name().into() })
    }

    /// Builds the range filter of a table with these bounds and frees its points. Returns `None` if
    /// the options select no range filter, or there are more than [`POINTS_MAX`] keys.
    ///
    /// Without keys the filter is empty and excludes the table.
    pub fn build_ranges(&mut self, smallest: &[u8], largest: &[u8]) -> Option<RangeFilter> {
        let points = self.ranges.take()?.finish(smallest, largest);
        if points.len() as u64 > POINTS_MAX {
            return None;
        }
        // Differs per table, and is as secret as the seed of the store.
        let seed = key_hash(&self.salt.to_le_bytes(), self.hash_seed);
        Some(RangeFilter::build(points, self.options.range_filter_bits_per_key, seed))
    }
}

impl Points {
    fn new(options: &TableOptions) -> Self {
        match options.filter_keys_max {
            Some(keys) => Self::Filter(BlockedBloom::for_keys(keys, options.filter_bits_per_key)),
            None => Self::Hashes(PageVec::new_in(SystemPages)),
        }
    }

    fn add(&mut self, hash: u64) {
        match self {
            Self::Hashes(hashes) => push(hashes, hash),
            Self::Filter(filter) => filter.insert_hash(hash),
        }
    }
}

/// Adds a hash. Grows by an eighth instead of doubling: the array may be most of a writer's memory.
fn push(hashes: &mut PageVec<u64>, hash: u64) {
    if hashes.len() == hashes.capacity() {
        hashes.reserve_exact((hashes.len() / 8).max(1 << 10));
    }
    hashes.push(hash);
}

impl Prefixes {
    fn add(&mut self, user_key: &[u8]) {
        let Some(prefix) = self.extractor.prefix(user_key) else { return };
        // Equal prefixes are adjacent. The prefixes of a custom function may recur, which costs a
        // few bits.
        if self.hashes.is_empty() || self.last != prefix {
            self.last.clear();
            self.last.extend_from_slice(prefix);
            push(&mut self.hashes, key_hash(prefix, self.hash_seed));
        }
    }
}
