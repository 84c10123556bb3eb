//! Approximate membership filters: compact summaries of a key set, without false negatives.
//!
//! | module                    | contents                                                              |
//! |---------------------------|-----------------------------------------------------------------------|
//! | [`hash`]                  | key hash: 64-bit xxh3                                                 |
//! | [`params`]                | bits, probes and false-positive rates                                 |
//! | [`blocked_bloom`]         | static filter with one cache line per probe                           |
//! | [`ribbon`]                | static filter of two thirds of the size, slower to build and probe    |
//! | [`binary_fuse`]           | static filter with 8 or 16 bits per fingerprint, three lines per probe |
//! | [`range_filter`]          | static filter for key ranges                                          |
//! | [`atomic_blocked_bloom`]  | concurrent filter for memtables                                       |
//! | [`table_filter`]          | an enum over all table filters                                        |
//! | [`many`]                  | probes of many filters with one key                                   |
//! | [`arena`]                 | memory for many filters, in huge pages                                |
//! | [`filter_block`]          | stored form of table filters                                          |
//! | [`standalone`]            | filters filled key by key and saved whole                             |
//! | [`filter`]                | traits, statistics and errors                                         |
//! | [`saved`]                 | stored form of standalone filters                                     |
//! | [`decode_error`]          | errors of both stored forms                                           |
//!
//! A filter never returns `false` for a key it was built over. Callers hash a key once and probe
//! every filter with the hash.
//!
//! # Use
//!
//! Filters that are filled key by key hash keys themselves and are saved whole: see [`standalone`].
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
//! Filters that are built at once over the hashes of all keys are smaller and faster.
//! [`filter_block`] stores the filter, and [`Expected`] identifies its table; use zeros if there is
//! only one filter.
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
//! The same works without the enum and without a stored form:
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
//! Without the default feature `std`, the crate needs `alloc` and 64-bit atomics. These are
//! missing: saving to writers and loading from readers (bytes remain), huge pages, and CPU
//! detection at run time. SIMD paths are used only if compiled in (`-C target-feature=+avx2`);
//! otherwise the portable code gives the same results. Logarithms come from `libm` and may differ
//! from `std` in the last digit, so a shape computed from a rate may differ by one bit. Stored
//! filters contain their shape.
//!
//! # With `serde`
//!
//! The feature `serde`, off by default, serializes the standalone filters as their saved bytes: a
//! list of numbers in formats without bytes, such as JSON. Deserialization uses the default hasher
//! of the type and rejects filters with another seed or hasher.

#![cfg_attr(not(feature = "std"), no_std)]

#[macro_use]
extern crate alloc;

/// Without `std` there is no CPU detection: the compile-time features count.
#[cfg(all(target_arch = "x86_64", not(feature = "std")))]
macro_rules! is_x86_feature_detected {
    ($feature:tt) => {
        // A call, because clippy reports `false && false` as a constant expression.
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
mod instruction_path;
/// Shared with the integration tests, which only reach the fastest path.
#[cfg(test)]
#[path = "../tests/filter/key_sets.rs"]
mod key_sets;
mod line;
pub mod many;
mod memory;
pub mod page_vec;
pub mod params;
#[doc(hidden)]
pub mod prefetch;
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
