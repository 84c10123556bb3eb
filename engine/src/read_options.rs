//! How reads treat the block cache, and damage.

use sievedb_sstable::CacheUse;

/// How the reads of a handle are done. Costs nothing to copy.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # use sievedb::{Db, ReadOptions};
/// let db = Db::open(folder.path())?;
/// // A report over everything, once: what others read often stays in the cache.
/// let once = db.default_keyspace().with_read_options(ReadOptions::new().fill_cache(false));
/// assert_eq!(once.iter().count(), 0);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct ReadOptions {
    fill_cache: bool,
    skip_damaged: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOptions {
    /// What a handle has at first.
    pub const fn new() -> Self {
        Self { fill_cache: true, skip_damaged: false }
    }

    /// Whether blocks that are read are kept in the block cache. True by default.
    ///
    /// Without it blocks that are in the cache are used, too, but do not count as used: reads leave
    /// the cache as it is. Each read of a block that is not there is then one of the file.
    pub const fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }

    /// Whether ranges pass over damaged blocks of tables, instead of ending there with
    /// [`Error::Corrupt`](crate::Error::Corrupt). False by default. Lookups fail as ever.
    ///
    /// To save what can be read. **An older value of a key may come to light**, or one that was
    /// removed, because what was newer is lost. A lookup of the same key tells: it fails, unless
    /// the filter of the damaged table knows that the key is not there. `docs/operations.md`, "When
    /// a table is damaged", has a program that copies a keyspace so, and `sieve scan
    /// --skip-damaged` does the same.
    pub const fn skip_damaged(mut self, skip: bool) -> Self {
        self.skip_damaged = skip;
        self
    }

    pub(crate) const fn skips_damaged(self) -> bool {
        self.skip_damaged
    }

    pub(crate) fn cache_use(self) -> CacheUse {
        if self.fill_cache { CacheUse::Fill } else { CacheUse::Bypass }
    }
}
