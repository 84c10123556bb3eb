//! Filters for use without a table: filled key by key, hashing keys themselves, saved whole.
//!
//! | structure              | offers                                         | bits per key at 1 % |
//! |------------------------|------------------------------------------------|---------------------|
//! | [`BloomFilter`]        | insertion, union, intersection                 | 9.6                 |
//! | [`AtomicBloomFilter`]  | the same by many threads at once               | 9.6                 |
//! | [`StripedBloomFilter`] | an array for each thread                       | 9.6 a thread        |
//! | [`PartitionedBloom`]   | every key sets equally many bits               | 9.6                 |
//! | [`CountingBloom`]      | removal; never full                            | 38.3                |
//! | [`CuckooFilter`]       | removal in less memory; can be full            | 9.5                 |
//! | [`ScalableBloom`]      | growth, where nobody knows the number of keys  | 14 to 60            |
//! | [`CountMinSketch`]     | how often a key was inserted                   | by the error        |
//!
//! Each takes keys as anything that is bytes, or their 64-bit hashes by the calls named `*_hash`.
//! Such a hash must be uniform in all its 64 bits, and the same for the same key on every call. The
//! hasher is any [`BuildHasher`](core::hash::BuildHasher); [`Xxh3`](crate::hash::Xxh3) by default.

mod atomic_bits;
pub mod atomic_bloom;
mod bits;
pub mod bloom;
pub mod count_min;
mod counters;
pub mod counting_bloom;
pub mod cuckoo;
pub mod partitioned_bloom;
mod probes;
pub mod scalable_bloom;
#[cfg(all(test, feature = "shuttle"))]
mod schedules;
pub mod striped_bloom;
mod striped_counter;

pub use atomic_bloom::AtomicBloomFilter;
pub use bloom::BloomFilter;
pub use count_min::CountMinSketch;
pub use counting_bloom::CountingBloom;
pub use cuckoo::CuckooFilter;
pub use partitioned_bloom::PartitionedBloom;
pub use probes::PROBES_MAX;
pub use scalable_bloom::ScalableBloom;
pub use striped_bloom::StripedBloomFilter;
