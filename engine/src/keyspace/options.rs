//! Options of an open keyspace.

use super::Keyspace;
#[cfg(doc)]
use crate::Error;
use crate::{FilterPolicy, KeyspaceOptions, PrefixExtractor, Result};

impl Keyspace {
    /// Returns the present options of this keyspace.
    ///
    /// ```
    /// use sievedb::{Compression, KeyspaceOptions};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// let pictures = db.keyspace_with("pictures", &KeyspaceOptions::new().block_bytes(16 << 10))?;
    /// pictures.set_options(pictures.options().compression(Compression::None))?;
    /// assert_eq!(pictures.options().get_block_bytes(), 16 << 10);
    /// println!("{}", pictures.options());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn options(&self) -> KeyspaceOptions {
        KeyspaceOptions::clone(&self.tree.options())
    }

    /// Replaces all options of this keyspace. To change single options, start from
    /// [`options`](Self::options). Durable at return. For the default keyspace, an open with
    /// [`Options::keyspace`](crate::Options::keyspace) replaces all options again.
    ///
    /// Applies to new memtables, blocks and tables. Existing tables keep their form until a
    /// compaction rewrites them; [`compact`](Self::compact) rewrites those with another
    /// compression. Filters of existing tables are rebuilt in the background: see
    /// [`set_filter_policy`](Self::set_filter_policy) and
    /// [`set_prefix_extractor`](Self::set_prefix_extractor). Range filters are built or removed. A
    /// compaction in flight ends with the compaction filter and the style with which it began. To
    /// prevent this, [pause](crate::Db::pause_compactions) compactions during the call.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`], [`Error::MergeOperatorFixed`] and [`Error::KeyspaceDropped`]:
    /// nothing is changed. [`Error::Io`] and [`Error::ReadOnly`]: the present options stay in
    /// effect, but the new options may be in effect when the store is reopened.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_options(&self.tree, options)
    }

    /// Changes the filter policy of this keyspace; otherwise as [`set_options`](Self::set_options).
    ///
    /// Filters in memory are reduced to the new limit at once. New tables get filters by `policy`.
    /// Filters that differ much from it are rebuilt in the background.
    ///
    /// # Errors
    ///
    /// As [`set_options`](Self::set_options).
    pub fn set_filter_policy(&self, policy: FilterPolicy) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_filter_policy(&self.tree, policy)
    }

    /// Changes the prefix extractor of this keyspace, `None` for no prefix filters; otherwise as
    /// [`set_options`](Self::set_options).
    ///
    /// New tables get prefix filters by `extractor`; those of existing tables are rebuilt in the
    /// background. Until then scans do not use them. Existing iterators remain valid. The function
    /// of [`PrefixExtractor::Custom`] is not stored: pass it to
    /// [`Options::prefix_function`](crate::Options::prefix_function) at each open.
    ///
    /// # Errors
    ///
    /// As [`set_options`](Self::set_options).
    pub fn set_prefix_extractor(&self, extractor: Option<PrefixExtractor>) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_prefix_extractor(&self.tree, extractor)
    }
}
