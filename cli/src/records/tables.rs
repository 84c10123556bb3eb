//! Tables for RocksDB.

use sievedb_migrate::export::Export;

use super::Sink;
use crate::error::Result;

/// Writes a column family for each keyspace.
pub(crate) struct Tables(pub(crate) Export);

impl Sink for Tables {
    fn keyspace(&mut self, name: &str) -> Result<()> {
        Ok(self.0.column_family(name)?)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.add(key, value)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()?;
        Ok(())
    }
}
