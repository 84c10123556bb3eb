//! Filters for use without a table: filled key by key, hashing keys themselves, saved whole.
//!
//! | structure          | offers                                              | bits per key at 1 % |
//! |--------------------|-----------------------------------------------------|---------------------|
//! | [`BloomFilter`]    | insertion, union, intersection                      | 9.6                 |
//! | [`CountingBloom`]  | removal, never full                                 | 38.3                |
//! | [`CuckooFilter`]   | removal, in less memory; can be full                | 9.5                 |
//! | [`ScalableBloom`]  | growth without a known size                         | 13 to 60            |
//! | [`CountMinSketch`] | how often a key was inserted                        | –                   |
//!
//! Each takes keys as anything that is bytes, or their 64-bit hashes by the calls named `*_hash`.
//! Such a hash must be uniform in all its 64 bits, and the same for the same key on every call. The
//! hasher is any [`BuildHasher`](core::hash::BuildHasher); [`Xxh3`](crate::hash::Xxh3) by default.

mod bits;
mod bloom;
mod count_min;
mod counters;
mod counting_bloom;
mod cuckoo;
mod probes;
mod scalable_bloom;

pub use bloom::BloomFilter;
pub use count_min::CountMinSketch;
pub use counting_bloom::CountingBloom;
pub use cuckoo::CuckooFilter;
pub use probes::PROBES_MAX;
pub use scalable_bloom::ScalableBloom;
