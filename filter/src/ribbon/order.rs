//! Sorts the keys of a layer by bucket: one radix pass and a counting sort.

use alloc::vec::Vec;

use super::row::{Source, TurnedRow};
use crate::page_vec::{self, PageVec};

/// Minimum starts per chunk of the radix pass: the keys of a chunk fit the L1 and L2 caches.
const CHUNK_STARTS_LOG2_MIN: u32 = 12;

/// Maximum number of chunks. Four times as many gain nothing at 10^8 keys.
const CHUNKS_MAX: u64 = 1024;

/// Hashes of a layer, partitioned into chunks of its starts.
#[derive(Debug)]
pub(crate) struct Chunks {
    hashes: PageVec<u64>,
    /// End index of each chunk.
    ends: Vec<usize>,
    source: Source,
    starts: u64,
    chunk_starts_log2: u32,
}

impl Chunks {
    /// Partitions `hashes`, without adjacent duplicates.
    pub(crate) fn new(hashes: &[u64], source: Source, starts: u64) -> Self {
        let needed = starts.div_ceil(CHUNKS_MAX).next_power_of_two().ilog2();
        let chunk_starts_log2 = needed.max(CHUNK_STARTS_LOG2_MIN);
        let chunk =
            |hash| (TurnedRow::new(hash, source, starts).start >> chunk_starts_log2) as usize;
        let last = ((starts - 1) >> chunk_starts_log2) as usize;

        let mut ends = vec![0; last + 1];
        for_each_distinct(hashes, |hash| ends[chunk(hash)] += 1);
        let mut total = 0;
        for end in &mut ends {
            (*end, total) = (total, total + *end);
        }
        let mut ordered = page_vec::zeros(total);
        for_each_distinct(hashes, |hash| {
            let place = &mut ends[chunk(hash)];
            ordered[*place] = hash;
            *place += 1;
        });
        Self { hashes: ordered, ends, source, starts, chunk_starts_log2 }
    }

    /// Calls `visit(bucket, hashes)` for each bucket of `2^bucket_starts_log2` starts, in order,
    /// with the hashes sorted by start.
    pub(crate) fn for_each_bucket(
        &self,
        bucket_starts_log2: u32,
        mut visit: impl FnMut(usize, &[u64]),
    ) {
        let chunk_starts = 1_usize << self.chunk_starts_log2;
        let bucket_starts = 1_usize << bucket_starts_log2;
        let buckets = self.starts.div_ceil(bucket_starts as u64) as usize; // Two bits each.
        let mut sorted = Vec::new();
        let mut ends = Vec::new();
        let mut begin = 0;
        for (chunk, &end) in self.ends.iter().enumerate() {
            let hashes = &self.hashes[begin..end];
            begin = end;
            let place = |hash| {
                TurnedRow::new(hash, self.source, self.starts).start as usize & (chunk_starts - 1)
            };

            ends.clear();
            ends.resize(chunk_starts, 0_u32);
            for &hash in hashes {
                ends[place(hash)] += 1; // Chunks have fewer than 2^32 keys.
            }
            let mut total = 0;
            for end in &mut ends {
                (*end, total) = (total, total + *end);
            }
            sorted.clear();
            sorted.resize(hashes.len(), 0);
            for &hash in hashes {
                let end = &mut ends[place(hash)];
                sorted[*end as usize] = hash;
                *end += 1;
            }
            let first = chunk << (self.chunk_starts_log2 - bucket_starts_log2);
            let mut from = 0;
            for (i, ends) in ends.chunks(bucket_starts).enumerate() {
                let to = ends[bucket_starts - 1] as usize;
                if first + i < buckets {
                    visit(first + i, &sorted[from..to]);
                }
                from = to;
            }
        }
    }

    /// Returns the number of hashes without adjacent duplicates.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }
}

/// Calls `visit` for each hash that differs from its predecessor.
fn for_each_distinct(hashes: &[u64], mut visit: impl FnMut(u64)) {
    let mut previous = hashes.first().map(|&hash| !hash);
    for &hash in hashes {
        if previous != Some(hash) {
            visit(hash);
            previous = Some(hash);
        }
    }
}
