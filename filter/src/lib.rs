//! Filters: small summaries of a set of keys that answer "surely not" or "maybe".
//!
//! | module                    | answers                                                        |
//! |---------------------------|----------------------------------------------------------------|
//! | [`hash`]                  | how a key becomes the 64-bit hash that every filter takes      |
//! | [`params`]                | how many bits and probes, and which false-positive rate        |
//! | [`blocked_bloom`]         | the filter of a table: built once, one cache line per question |
//! | [`ribbon`]                | the same in two thirds of the memory, slower to build and ask  |
//! | [`binary_fuse`]           | the same with two rates alone, and three lines per question    |
//! | [`atomic_blocked_bloom`]  | the filter of a memtable: many threads insert and ask at once  |
//! | [`table_filter`]          | any filter of a table, told apart by an enum                   |
//! | [`filter_block`]          | the bytes of a table's filter                                  |
//! | [`decode_error`]          | what can be wrong with those bytes                             |
//!
//! A filter never answers `false` for a key that it was built over. Callers hash a key once and
//! ask every filter with the hash.
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

pub mod atomic_blocked_bloom;
pub mod binary_fuse;
pub mod blocked_bloom;
pub mod decode_error;
pub mod filter_block;
pub mod hash;
mod line;
pub mod params;
pub mod ribbon;
pub mod table_filter;

pub use atomic_blocked_bloom::AtomicBlockedBloom;
pub use binary_fuse::{BinaryFuse8, BinaryFuse16};
pub use blocked_bloom::BlockedBloom;
pub use decode_error::DecodeError;
pub use filter_block::{Expected, FilterKind};
pub use hash::{HASH_VERSION, key_hash};
pub use line::{LINE_BYTES, PROBES_MAX};
pub use ribbon::Ribbon;
pub use table_filter::TableFilter;
