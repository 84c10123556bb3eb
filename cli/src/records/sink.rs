//! Destinations of an export.

use crate::error::Result;

/// Takes entries by keyspace, in key order.
pub(crate) trait Sink {
    /// Starts a keyspace. Later entries belong to it.
    fn keyspace(&mut self, name: &str) -> Result<()>;

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Makes the export durable, and gives it its name.
    fn finish(self: Box<Self>) -> Result<()>;
}
