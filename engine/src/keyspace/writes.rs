//! Writes of single entries.

use sievedb_format::Kind;

use super::Keyspace;
use crate::{
    Result,
    commit::{Always, WriteEncoder},
};

/// Implements the write methods of a handle. `field` names its keyspace, if it is none itself.
macro_rules! write_methods {
    ($handle:ty $(, $field:ident)?) => {
        /// Writing.
        impl $handle {
            /// Stores `value` under `key`, with the durability of
            /// [`Options::durability`](crate::Options::durability). For another durability, commit
            /// a [`Batch`](crate::Batch) of one entry.
            ///
            /// # Errors
            ///
            /// * Nothing was changed: [`Error::KeyTooLong`], [`Error::ValueTooLong`],
            ///   [`Error::KeyspaceDropped`], and [`Error::WriteTooLarge`] if memtables never have
            ///   room for the entry.
            /// * The write is not visible, but may be found when the store is reopened:
            ///   [`Error::Io`], [`Error::ReadOnly`].
            ///
            /// [`Error::KeyTooLong`]: crate::Error::KeyTooLong
            /// [`Error::ValueTooLong`]: crate::Error::ValueTooLong
            /// [`Error::WriteTooLarge`]: crate::Error::WriteTooLarge
            /// [`Error::Io`]: crate::Error::Io
            /// [`Error::ReadOnly`]: crate::Error::ReadOnly
            /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
            pub fn insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<()> {
                self$(.$field)?.put(key.as_ref(), value.as_ref())
            }

            /// Removes `key`. The key need not exist.
            ///
            /// # Errors
            ///
            /// As [`insert`](Self::insert).
            pub fn remove(&self, key: impl AsRef<[u8]>) -> $crate::Result<()> {
                self$(.$field)?.delete(key.as_ref())
            }
        }
    };
}

pub(crate) use write_methods;

write_methods!(Keyspace);

impl Keyspace {
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write =
            WriteEncoder::single_put(store.hash_seed, &self.tree, Kind::Put, key, value)?;
        store.commit(&mut write, store.options.durability, &mut Always).map(drop)
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<()> {
        let store = self.open.accept()?;
        let mut write = WriteEncoder::single_remove(store.hash_seed, &self.tree, key)?;
        store.commit(&mut write, store.options.durability, &mut Always).map(drop)
    }
}
