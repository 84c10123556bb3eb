//! The memtable: the newest entries of a keyspace, sorted, behind a concurrent filter.
//!
//! | module       | answers                                                       |
//! |--------------|---------------------------------------------------------------|
//! | [`memtable`] | insertion, point lookup, accounting; what a reader may rely on |
//! | [`cursor`]   | walking over all versions in both directions                   |
//!
//! Threads insert and read at once without a lock. Nothing is ever taken out: a full memtable is
//! frozen, flushed to a table and dropped as a whole.

pub mod cursor;
pub mod memtable;
mod node_memory;
mod skiplist;
mod sync;

pub use cursor::MemtableCursor;
pub use memtable::Memtable;
pub use node_memory::spare_bytes;
