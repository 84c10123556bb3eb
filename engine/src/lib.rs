//! An embedded LSM-tree key-value engine that answers absent keys from memory.

mod background;
mod batch;
pub mod clock;
mod commit;
mod compact;
mod compaction;
mod db;
mod describe;
mod durability;
mod error;
mod file_name;
mod flush;
pub mod fs;
mod install;
mod iter;
mod keyspace;
pub mod keyspace_options;
mod keyspace_set;
mod listener;
mod log;
mod lookup;
mod manifest;
mod obsolete;
mod open_store;
pub mod options;
#[cfg_attr(feature = "planted-bugs", doc(hidden))]
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
mod range;
mod read_view;
mod recovery;
mod snapshot;
mod snapshot_list;
mod source;
pub mod stats;
mod store;
mod table_files;
mod table_output;
mod table_store;
mod throttle;
mod tree;
mod version;
mod wal;

pub use batch::Batch;
pub use db::{DEFAULT_KEYSPACE, Db};
pub use describe::describe;
pub use durability::Durability;
pub use error::{Error, Result};
pub use keyspace::Keyspace;
pub use keyspace_options::{Compression, KeyspaceOptions};
pub use listener::{Event, EventListener};
pub use options::{Options, ReadMode};
pub use range::{Keys, Range};
pub use sievedb_format::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use snapshot::{KeyspaceSnapshot, Snapshot};
pub use stats::Stats;
