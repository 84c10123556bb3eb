//! An embedded LSM-tree key-value engine that answers absent keys from memory.

mod batch;
pub mod clock;
mod commit;
mod compaction;
mod db;
mod describe;
mod durability;
mod error;
mod file_name;
pub mod fs;
mod iter;
mod keyspace;
pub mod keyspace_options;
mod listener;
mod log;
mod manifest;
mod memory;
pub mod options;
#[cfg_attr(feature = "planted-bugs", doc(hidden))]
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
mod range;
mod read;
mod snapshot;
pub mod stats;
mod store;
mod sync;
mod table;
mod version;
mod wal;

pub use batch::Batch;
pub use db::Db;
pub use describe::describe;
pub use durability::Durability;
pub use error::{Error, Result};
pub use keyspace::Keyspace;
pub use keyspace_options::{Compression, DEFAULT_KEYSPACE, KeyspaceOptions};
pub use listener::{Event, EventListener};
pub use options::{Options, ReadMode};
pub use range::{Keys, Range};
pub use sievedb_format::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use snapshot::{KeyspaceSnapshot, Snapshot};
pub use stats::Stats;

/// The example of the README, tested.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
