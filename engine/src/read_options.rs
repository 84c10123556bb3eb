//! How reads treat the block cache.

use sievedb_sstable::CacheUse;

/// How the reads of a handle are done. Costs nothing to copy.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # use sievedb::{Db, ReadOptions};
/// let db = Db::open(folder.path())?;
/// // A report over everything, once: what others read often stays in the cache.
/// let once = db.with_read_options(ReadOptions::new().fill_cache(false));
/// assert_eq!(once.iter().count(), 0);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    fill_cache: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOptions {
    /// What a handle has at first.
    pub const fn new() -> Self {
        Self { fill_cache: true }
    }

    /// Whether blocks that are read are kept in the block cache. True by default.
    ///
    /// Without it blocks that are in the cache are used, too, but do not count as used: reads leave the
    /// cache as it is. Each read of a block that is not there is then one of the file.
    pub const fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }

    pub(crate) fn cache_use(self) -> CacheUse {
        if self.fill_cache { CacheUse::Fill } else { CacheUse::Bypass }
    }
}
