//! An embedded LSM-tree key-value engine that answers absent keys from memory.

pub mod clock;
mod compaction;
mod error;
mod file_name;
pub mod fs;
mod iter;
mod log;
mod manifest;
mod version;
mod wal;

pub use error::{Error, Result};
