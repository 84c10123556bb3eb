//! Keys of a layer in the order of their buckets, by one radix pass and a counting sort.

use alloc::vec::Vec;

use super::row::{Source, TurnedRow};
use crate::page_vec::{self, PageVec};

/// The radix pass makes chunks of so many starts at least: their keys fit the first caches.
const CHUNK_STARTS_LOG2_MIN: u32 = 12;

/// The radix pass writes to so many places at most. Four times as many gain nothing at 10^8 keys.
const CHUNKS_MAX: u64 = 1024;

/// Hashes of a layer, chunk by chunk of its starts.
#[derive(Debug)]
pub(crate) struct Chunks {
    hashes: PageVec<u64>,
    /// Where each chunk ends.
    ends: Vec<usize>,
    source: Source,
    starts: u64,
    chunk_starts_log2: u32,
}

impl Chunks {
    /// Partitions `hashes`; a hash that equals its predecessor is left out.
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

    /// Calls `visit(bucket, hashes)` for each bucket of `2^bucket_starts_log2` starts, from left to
    /// right, with the hashes in the order of their starts.
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
                ends[place(hash)] += 1; // A chunk of 2^32 keys would have failed above.
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

    /// Hashes without equal neighbours.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }
}

/// Calls `visit` for each hash that does not equal the one before.
fn for_each_distinct(hashes: &[u64], mut visit: impl FnMut(u64)) {
    let mut previous = hashes.first().map(|&hash| !hash);
    for &hash in hashes {
        if previous != Some(hash) {
            visit(hash);
            previous = Some(hash);
        }
    }
}
