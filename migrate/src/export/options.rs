//! Settings of an export.

use std::path::Path;

use super::Export;
use crate::error::Result;

/// Maximum bytes of a key and its value together: 1 GiB. RocksDB stores the sizes of blocks in 32
/// bits.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;

/// Range of the maximum size of a table.
const FILE_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=((4 << 30) - (1 << 20));

/// Options of the tables that an export writes.
///
/// # Examples
///
/// ```
/// # fn main() -> sievedb_migrate::Result<()> {
/// use sievedb_migrate::export::ExportOptions;
///
/// let directory = tempfile::tempdir().expect("a temporary directory");
/// let path = directory.path().join("tables");
/// let mut export = ExportOptions::new().file_bytes(64 << 20).create(&path)?;
/// export.column_family("default")?;
/// export.add(b"key", b"value")?;
/// let families = export.finish()?;
/// assert_eq!(families[0].digest.entries(), 1);
/// assert!(path.join("default/000001.sst").exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ExportOptions {
    pub(super) file_bytes: u64,
    pub(super) is_compressed: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { file_bytes: 256 << 20, is_compressed: true }
    }
}

impl ExportOptions {
    /// Returns the defaults: tables of up to 256 MiB, compressed by LZ4.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of a table, from 1 MiB to 4 GiB less 1 MiB. Clamps values outside of
    /// this range. Default: 256 MiB.
    ///
    /// Only a table with an entry larger than this exceeds it.
    #[must_use]
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes.clamp(*FILE_BYTES.start(), *FILE_BYTES.end());
        self
    }

    /// Compresses blocks by LZ4, if that saves an eighth. Default: true.
    ///
    /// Turn it off for a RocksDB that was built without LZ4.
    #[must_use]
    pub fn compress(mut self, compress: bool) -> Self {
        self.is_compressed = compress;
        self
    }

    /// Creates the export `path`. See [`Export::create`].
    ///
    /// # Errors
    ///
    /// Those of [`Export::create`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Export> {
        Export::create_with(path.as_ref(), self.clone())
    }
}
