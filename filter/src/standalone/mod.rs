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
//!
//! A number is inserted as its bytes, and any other key that is [`Hash`](core::hash::Hash) by its
//! hash:
//!
//! ```
//! use std::hash::BuildHasher;
//!
//! use sievedb_filter::standalone::BloomFilter;
//!
//! let mut filter = BloomFilter::with_rate(1_000, 0.01);
//! filter.insert(42_u64.to_le_bytes());
//! let pair = ("ant", 6);
//! filter.insert_hash(filter.hasher().hash_one(&pair));
//! filter.extend(["bee", "cow"]);
//!
//! let read = BloomFilter::from_bytes(&filter.to_bytes())?; // Or `save` and `load`: a file.
//! assert!(read.may_contain("cow") && read.may_contain(42_u64.to_le_bytes()));
//! assert!(read.may_contain_hash(read.hasher().hash_one(&pair)));
//! # Ok::<(), sievedb_filter::DecodeError>(())
//! ```
//!
//! What [`hash_one`](core::hash::BuildHasher::hash_one) gives depends on the processor and on the
//! release of Rust: a filter that is loaded elsewhere is better filled with bytes. A hasher with
//! random keys, such as
//! [`RandomState`](https://doc.rust-lang.org/std/hash/struct.RandomState.html), cannot be had
//! again, and a filter with it is refused when another process loads it.

mod atomic_bits;
pub mod atomic_bloom;
mod bits;
pub mod bloom;
pub mod count_min;
mod counters;
pub mod counting_bloom;
pub mod cuckoo;
mod own_methods;
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
