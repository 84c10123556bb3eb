//! Destinations of an export.

use crate::error::Result;

/// Receives entries by keyspace, in key order.
pub(crate) trait Sink {
    /// Starts a keyspace. Later entries belong to it.
    fn keyspace(&mut self, name: &str) -> Result<()>;

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Finishes the export. Makes a file or directory durable under its final name.
    fn finish(self: Box<Self>) -> Result<()>;
}
