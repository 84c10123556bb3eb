//! The options of a keyspace that is open.

use super::Keyspace;
use crate::{FilterPolicy, KeyspaceOptions, PrefixExtractor, Result};

impl Keyspace {
    /// The options that this keyspace has at present: those it was created with, but for what was
    /// changed since.
    ///
    /// ```
    /// use sievedb::{Compression, KeyspaceOptions};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(folder.path())?;
    /// let pictures = db.keyspace_with("pictures", &KeyspaceOptions::new().block_bytes(16 << 10))?;
    /// pictures.set_options(pictures.options().compression(Compression::None))?;
    /// assert_eq!(pictures.options().get_block_bytes(), 16 << 10);
    /// println!("{}", pictures.options());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn options(&self) -> KeyspaceOptions {
        KeyspaceOptions::clone(&self.tree.options())
    }

    /// Changes the options of this keyspace, all of them: begin with [`options`](Self::options) to
    /// keep the others. Durable at return; for the default keyspace
    /// [`Options::keyspace`](crate::Options::keyspace) counts again if it is called when the store
    /// is opened.
    ///
    /// Holds for what is written from now on: the next memtables, blocks and tables. Tables that
    /// there are stay as they are until a compaction merges them with others, or
    /// [`compact`](Self::compact) finds them otherwise compressed. Only their filters follow by
    /// themselves, as [`set_filter_policy`](Self::set_filter_policy) and
    /// [`set_prefix_extractor`](Self::set_prefix_extractor) say; range filters come or go.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for an option out of range and
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), which change nothing;
    /// [`Error::Io`](crate::Error::Io) and [`Error::ReadOnly`](crate::Error::ReadOnly), after which
    /// the present options are as before, but the new ones may be there when the store is reopened.
    pub fn set_options(&self, options: KeyspaceOptions) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_options(&self.tree, options)
    }

    /// Changes the filters of this keyspace. Durable at return; for the default keyspace
    /// [`Options::keyspace`](crate::Options::keyspace) counts again if it is called when the store
    /// is opened.
    ///
    /// Filters that are in memory give up at once what `policy` leaves no room for. New tables get
    /// filters after it, and those that differ much from it are rebuilt in the background.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for bits out of range and
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), which change nothing;
    /// [`Error::Io`](crate::Error::Io) and [`Error::ReadOnly`](crate::Error::ReadOnly), after which
    /// the present options are as before, but the new ones may be there when the store is reopened.
    pub fn set_filter_policy(&self, policy: FilterPolicy) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_filter_policy(&self.tree, policy)
    }

    /// Changes what finds the prefixes of this keyspace; `None` for no prefix filters. Durable at
    /// return; for the default keyspace [`Options::keyspace`](crate::Options::keyspace) counts
    /// again if it is called when the store is opened.
    ///
    /// New tables get prefix filters after it, and those of the others are rebuilt in the
    /// background. Until then scans do without them; ranges and iterators that were made before
    /// lose nothing. The function of [`PrefixExtractor::Custom`] is not stored: give it to
    /// [`Options::prefix_function`](crate::Options::prefix_function) whenever the store is opened.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a length or a name out of range
    /// and [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped), which change nothing;
    /// [`Error::Io`](crate::Error::Io) and [`Error::ReadOnly`](crate::Error::ReadOnly), after which
    /// the present options are as before, but the new ones may be there when the store is reopened.
    pub fn set_prefix_extractor(&self, extractor: Option<PrefixExtractor>) -> Result<()> {
        let store = self.open.accept()?;
        self.tree.check()?;
        store.set_prefix_extractor(&self.tree, extractor)
    }
}
