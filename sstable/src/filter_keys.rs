//! What the filters of a table that is being written are built over.

use sievedb_filter::{
    key_hash,
    range_filter::{PointCollector, Points},
};

use crate::{options::TableOptions, prefix_extractor::PrefixExtractor};

/// What the filters of a table that is being written are built over: 8 bytes for each user key,
/// as many for each prefix, and as many for each user key if there is to be a range filter.
#[derive(Debug)]
pub(crate) struct FilterKeys {
    hash_seed: u64,
    /// Hashes of the user keys, unless there is to be no filter.
    points: Option<Vec<u64>>,
    /// Of the prefixes, unless there is to be no filter.
    prefixes: Option<Prefixes>,
    /// What a range filter knows of the user keys, unless there is to be none.
    ranges: Option<PointCollector>,
}

/// The prefixes so far.
#[derive(Debug)]
struct Prefixes {
    extractor: PrefixExtractor,
    hash_seed: u64,
    last: Vec<u8>,
    hashes: Vec<u64>,
}

impl FilterKeys {
    /// None yet, for filters as `options` want them, in a store with this seed.
    pub(crate) fn new(options: &TableOptions, hash_seed: u64) -> Self {
        let prefixes = options.prefix_extractor.as_ref().map(|extractor| Prefixes {
            hash_seed: extractor.hash_seed(hash_seed),
            extractor: extractor.clone(),
            last: Vec::new(),
            hashes: Vec::new(),
        });
        Self {
            hash_seed,
            points: (options.filter_bits_per_key > 0.0).then(Vec::new),
            prefixes: prefixes.filter(|_| options.prefix_filter_bits_per_key > 0.0),
            ranges: (options.range_filter_bits_per_key > 0.0).then(PointCollector::new),
        }
    }

    /// Adds a user key, which is behind all those before.
    pub(crate) fn add(&mut self, user_key: &[u8]) {
        if let Some(hashes) = &mut self.points {
            hashes.push(key_hash(user_key, self.hash_seed));
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(user_key);
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.push(user_key);
        }
    }

    /// Bits that the filters will take, about.
    pub(crate) fn filter_bits(&self, options: &TableOptions) -> f64 {
        let points = self.points.as_ref().map_or(0, Vec::len) as f64;
        let prefixes = self.prefixes.as_ref().map_or(0, |prefixes| prefixes.hashes.len()) as f64;
        let ranges = self.ranges.as_ref().map_or(0, PointCollector::len) as f64;
        points * options.filter_bits_per_key
            + prefixes * options.prefix_filter_bits_per_key
            + ranges * options.range_filter_bits_per_key
    }

    /// Takes the hashes of the user keys out; none if there is to be no filter.
    pub(crate) fn take_points(&mut self) -> Vec<u64> {
        self.points.take().unwrap_or_default()
    }

    /// Takes the hashes of the prefixes out, and the seed that they were made with; no hashes if
    /// there is to be no filter, and also if no key has a prefix.
    pub(crate) fn take_prefixes(&mut self) -> Option<(Vec<u64>, u64)> {
        self.prefixes.take().map(|prefixes| (prefixes.hashes, prefixes.hash_seed))
    }

    /// Takes out what the range filter of a table with these bounds is built over.
    pub(crate) fn take_ranges(&mut self, smallest: &[u8], largest: &[u8]) -> Option<Points> {
        self.ranges.take().map(|ranges| ranges.finish(smallest, largest))
    }
}

impl Prefixes {
    fn add(&mut self, user_key: &[u8]) {
        let Some(prefix) = self.extractor.prefix(user_key) else { return };
        // Keys with the same prefix follow each other. Those of a function may be met again, which
        // costs a few bits.
        if self.hashes.is_empty() || self.last != prefix {
            self.last.clear();
            self.last.extend_from_slice(prefix);
            self.hashes.push(key_hash(prefix, self.hash_seed));
        }
    }
}
