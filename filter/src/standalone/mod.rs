//! Filters without a table: filled key by key, hashing keys themselves, saved whole.
//!
//! | structure              | feature                                        | bits per key at 1 % |
//! |------------------------|------------------------------------------------|---------------------|
//! | [`BloomFilter`]        | insertion, union, intersection                 | 9.6                 |
//! | [`AtomicBloomFilter`]  | concurrent insertion and probes                | 9.6                 |
//! | [`StripedBloomFilter`] | one array per thread                           | 9.6 a thread        |
//! | [`PartitionedBloom`]   | one slice per probe                            | 9.6                 |
//! | [`CountingBloom`]      | removal; never full                            | 38.3                |
//! | [`CuckooFilter`]       | removal in less memory; can be full            | 9.5                 |
//! | [`ScalableBloom`]      | growth, for an unknown number of keys          | 14 to 60            |
//! | [`CountMinSketch`]     | frequencies                                    | by the error        |
//!
//! Keys are anything that is bytes, or 64-bit hashes in the methods named `*_hash`. Such a hash
//! must be uniform in all 64 bits, and always the same for the same key. The hasher is any
//! [`BuildHasher`](core::hash::BuildHasher), by default [`Xxh3`](crate::hash::Xxh3).
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
//! The result of [`hash_one`](core::hash::BuildHasher::hash_one) depends on the processor and on
//! the release of Rust: fill a filter that is loaded elsewhere with bytes. A hasher with random
//! keys, such as [`RandomState`](https://doc.rust-lang.org/std/hash/struct.RandomState.html),
//! cannot be recreated, so loading its filter in another process fails.

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
