//! Filters: small summaries of a set of keys that answer "surely not" or "maybe".
//!
//! | module                    | answers                                                        |
//! |---------------------------|----------------------------------------------------------------|
//! | [`hash`]                  | how a key becomes the 64-bit hash that every filter takes      |
//! | [`params`]                | how many bits and probes, and which false-positive rate        |
//! | [`blocked_bloom`]         | the filter of a table: built once, one cache line per question |
//! | [`ribbon`]                | the same in two thirds of the memory, slower to build and ask  |
//! | [`binary_fuse`]           | the same with two rates alone, and three lines per question    |
//! | [`range_filter`]          | whether any key of a range is there, not one key               |
//! | [`atomic_blocked_bloom`]  | the filter of a memtable: many threads insert and ask at once  |
//! | [`table_filter`]          | any filter of a table, told apart by an enum                   |
//! | [`many`]                  | one key against the filters of many tables                     |
//! | [`arena`]                 | memory for the filters of many tables, in large pages          |
//! | [`filter_block`]          | the bytes of a table's filter                                  |
//! | [`standalone`]            | filters for other uses: filled key by key, saved whole         |
//! | [`filter`]                | what the filters have in common: traits, statistics, errors    |
//! | [`saved`]                 | the bytes of a standalone filter                               |
//! | [`decode_error`]          | what can be wrong with those bytes                             |
//!
//! A filter never answers `false` for a key that it was built over. Callers hash a key once and
//! ask every filter with the hash.
//!
//! # Use
//!
//! Key by key, with the hashing done by the filter, which is saved whole: see [`standalone`].
//!
//! ```
//! use sievedb_filter::standalone::BloomFilter;
//!
//! let mut filter = BloomFilter::with_rate(1_000, 0.01);
//! filter.insert("ant");
//! let read = BloomFilter::from_bytes(&filter.to_bytes())?;
//! assert!(read.may_contain("ant") && !read.may_contain("cow"));
//! # Ok::<(), sievedb_filter::DecodeError>(())
//! ```
//!
//! At once over the hashes of all keys, smaller and faster: [`filter_block`] stores it, and
//! [`Expected`] names what it belongs to, or zeros if there is only one filter.
//!
//! ```
//! use sievedb_filter::{Expected, FilterKind, TableFilter, filter_block, key_hash};
//!
//! let seed = 7;
//! let hashes: Vec<u64> = ["ant", "bee"].iter().map(|key| key_hash(key.as_bytes(), seed)).collect();
//! let kind = FilterKind::Ribbon;
//! let bits_per_key = kind.bits_per_key_for(0.001).expect("a ribbon has such a rate");
//! let filter = TableFilter::build(kind, &hashes, bits_per_key).expect("the kind is built");
//!
//! let expected = Expected { hash_seed: seed, salt: 0 };
//! let bytes = filter_block::encode(&filter, expected);
//! let read = TableFilter::decode(&bytes, expected)?;
//! assert!(read.may_contain_hash(key_hash(b"bee", seed)));
//! # Ok::<(), sievedb_filter::DecodeError>(())
//! ```
//!
//! Or without the enum and without bytes:
//!
//! ```
//! use sievedb_filter::{BlockedBloom, hash::key_hash};
//!
//! let seed = 7;
//! let hashes: Vec<u64> = ["ant", "bee"].iter().map(|key| key_hash(key.as_bytes(), seed)).collect();
//! let filter = BlockedBloom::build(&hashes, 10.0);
//! assert!(filter.may_contain_hash(key_hash(b"bee", seed)));
//! assert!(!filter.may_contain_hash(key_hash(b"cow", seed)));
//! ```
//!
//! # Without `std`
//!
//! Without the feature `std`, which is on by default, the crate needs `alloc` and a processor with
//! 64-bit atomics only. What is then missing: saving to writers and loading from readers (bytes
//! remain), large pages for large filters, and the look at the processor at run time. The SIMD
//! paths are taken only if they are compiled in (`-C target-feature=+avx2`); otherwise the portable
//! ones, with the same answers. Logarithms come from `libm` then, and may differ from those of
//! `std` in the last digit, so that a shape computed from a rate may differ by one bit. Stored
//! filters name their shape.
//!
//! # With `serde`
//!
//! The feature `serde`, which is off by default, makes the standalone filters serialisable, as
//! their saved bytes: a list of numbers in formats without bytes, such as JSON. A filter is read
//! back with the default hasher of its type; one with another seed or another hasher is refused
//! then.

#![cfg_attr(not(feature = "std"), no_std)]

#[macro_use]
extern crate alloc;

/// Without `std` nobody can look at the processor: what was compiled for counts.
#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
macro_rules! is_x86_feature_detected {
    ($feature:tt) => {
        // A call, or clippy sees "false and false" where several features are asked for.
        core::convert::identity(cfg!(target_feature = $feature))
    };
}

pub mod arena;
pub mod atomic_blocked_bloom;
pub mod binary_fuse;
pub mod blocked_bloom;
pub mod decode_error;
pub mod filter;
pub mod filter_block;
mod filter_of_table;
#[cfg(not(feature = "std"))]
mod float;
pub mod hash;
mod huge_pages;
mod instruction_path;
/// Shared with the tests of the public interface, which see the fastest path only.
#[cfg(test)]
#[path = "../tests/filter/key_sets.rs"]
mod key_sets;
mod line;
pub mod many;
mod memory;
pub mod page_vec;
pub mod params;
pub mod range_filter;
pub mod ribbon;
pub mod saved;
#[cfg(feature = "serde")]
mod saved_serde;
pub mod standalone;
mod sync;
pub mod table_filter;

pub use arena::{ArenaStats, FilterArena};
pub use atomic_blocked_bloom::AtomicBlockedBloom;
pub use binary_fuse::{BinaryFuse8, BinaryFuse16};
pub use blocked_bloom::BlockedBloom;
pub use decode_error::DecodeError;
pub use filter::{Filter, FilterFull, FilterStats, InsertFilter, KeyFilter, RemoveFilter};
pub use filter_block::{Expected, FilterKind};
pub use hash::{HASH_VERSION, Xxh3, key_hash};
pub use line::{LINE_BYTES, PROBES_MAX};
pub use page_vec::PageVec;
pub use range_filter::RangeFilter;
pub use ribbon::Ribbon;
pub use saved::Saved;
pub use table_filter::TableFilter;
