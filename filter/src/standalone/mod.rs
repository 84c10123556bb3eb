//! Filters for use without a table: filled key by key, hashing keys themselves, saved whole.
//!
//! | structure        | offers                                              | bits per key at 1 % |
//! |------------------|-----------------------------------------------------|---------------------|
//! | [`BloomFilter`]  | insertion, union, intersection                      | 9.6                 |
//!
//! Each takes keys as anything that is bytes, or their 64-bit hashes by the calls named `*_hash`.
//! Such a hash must be uniform in all its 64 bits, and the same for the same key on every call. The
//! hasher is any [`BuildHasher`](core::hash::BuildHasher); [`Xxh3`](crate::hash::Xxh3) by default.

mod bits;
mod bloom;
mod probes;

pub use bloom::BloomFilter;
pub use probes::PROBES_MAX;
