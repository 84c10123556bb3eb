//! Options of reads.

use sievedb_sstable::CacheUse;

/// Options of reads through one handle. Free to copy.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # use sievedb::{Db, ReadOptions};
/// let db = Db::open(dir.path())?;
/// // A full scan must not evict the blocks that lookups use.
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
    /// Returns the options of a new handle.
    pub const fn new() -> Self {
        Self { fill_cache: true, skip_damaged: false }
    }

    /// Keeps blocks that are read in the block cache; default `true`.
    ///
    /// With `false`, reads use cached blocks but do not change the cache: a hit does not count as a
    /// use, and each miss reads the file.
    pub const fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }

    /// Makes ranges skip damaged blocks of tables, instead of failing with
    /// [`Error::Corrupt`](crate::Error::Corrupt); default `false`. Lookups still fail.
    ///
    /// Use it to rescue data. **A range may then show an older value of a key, or a removed key**,
    /// because the newer version is lost. A lookup of such a key fails, unless the filter of the
    /// damaged table rejects the key. `docs/operations.md`, "When a table is damaged", has a
    /// program that copies a keyspace in this way, as `sieve scan --skip-damaged` does.
    ///
    /// An [`Error::Io`](crate::Error::Io), such as that of a bad sector, still ends the range: seek
    /// to a key after it. [`Options::repair`](crate::Options::repair) skips such blocks too.
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
