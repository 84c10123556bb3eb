//! The memtable: the newest entries of a keyspace, sorted, behind a concurrent filter.
//!
//! | module       | contents                                                |
//! |--------------|---------------------------------------------------------|
//! | [`memtable`] | insertion, point lookup, memory accounting, visibility  |
//! | [`cursor`]   | iteration over all versions in both directions          |
//! | [`ranges`]   | range tombstones, beside the entries                    |
//!
//! Threads insert and read concurrently without a lock. Entries are never removed: a full memtable
//! is frozen, flushed to a table and dropped as a whole.

mod arena;
pub mod cursor;
pub mod memtable;
pub mod ranges;
mod skiplist;
mod sync;

pub use arena::spare_bytes;
pub use cursor::MemtableCursor;
pub use memtable::Memtable;
pub use ranges::MemtableRanges;
