//! Opening and verifying a store.

use std::{path::Path, sync::Arc};

use super::Db;
#[cfg(doc)]
use crate::{Durability, Error};
use crate::{
    Keyspace, Options, ReadOptions, Result, VerifyProgress, VerifyReport,
    default_budget::DefaultBudget,
    handle::Handle,
    handle_counts::HandleKind,
    keyspace_options::DEFAULT_KEYSPACE,
    store::{open_store::OpenStore, verify::verify_folder},
};

impl Options {
    /// Opens the store in the directory `path`. Creates the store if the directory is missing or
    /// has no files, unless [`create_if_missing`](Self::create_if_missing),
    /// [`read_only`](Self::read_only) or [`follow`](Self::follow) forbids it. Recovers all
    /// acknowledged writes, as far as their [`Durability`] guarantees.
    ///
    /// # Errors
    ///
    /// * [`Error::Locked`]: the store is open in this or another process.
    /// * [`Error::Corrupt`]: a file is damaged.
    /// * [`Error::NeedsFeature`]: data is compressed by zstd, and this build lacks the feature
    ///   `zstd`.
    /// * [`Error::UnknownMergeOperator`]: a keyspace needs an operator that was not
    ///   [registered](Self::merge_operator).
    /// * [`Error::MergeOperatorFixed`]: [`keyspace`](Self::keyspace) changes or omits the stored
    ///   merge operator of the default keyspace.
    /// * [`Error::IncompleteReplica`], [`Error::IncompleteRepair`]: the directory is not a whole
    ///   store.
    /// * [`Error::NewerRelease`]: a later release wrote a file of the store.
    /// * [`Error::Encrypted`], [`Error::NotEncrypted`], [`Error::NoKey`], [`Error::WrongKey`]: the
    ///   store requires other keys, or none.
    /// * [`Error::InvalidOption`], [`Error::BudgetTooSmall`]: an option or the memory budget is out
    ///   of range.
    /// * [`Error::ForeignDirectory`]: the directory has other files and no store.
    /// * [`Error::NotADirectory`]: `path` is a file.
    /// * [`Error::NoStore`]: no store exists, and none may be created.
    /// * [`Error::StoreExists`]: a store exists, and [`create_new`](Self::create_new) was set.
    /// * [`Error::Io`].
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Db> {
        match &self.memory_pool {
            Some(pool) => {
                let bytes = pool.accept()?.bytes();
                self.memory.default =
                    DefaultBudget { bytes, source: crate::stats::BudgetSource::Pool };
            }
            None => self.memory.find_default(&*self.fs),
        }
        self.validate()?;
        let open = Arc::new(OpenStore::open(path.as_ref(), self)?);
        let tree = open.store().keyspace(DEFAULT_KEYSPACE, None)?;
        let handle = Handle::new(open, HandleKind::Db);
        Ok(Db { default: Keyspace::new(handle, tree, ReadOptions::new()) })
    }

    /// Verifies the store in the directory `path` as [`Db::verify`] does. Works on a store that
    /// cannot be opened. Needs read permission only, and writes nothing. Of the options it uses the
    /// file system and the keys.
    ///
    /// No process may have the store open, except [read-only](Self::read_only).
    ///
    /// # Errors
    ///
    /// * [`Error::NoStore`]: the directory is missing or contains no store.
    /// * [`Error::NotADirectory`]: `path` is a file.
    /// * [`Error::Locked`]: the store is open.
    /// * [`Error::NewerRelease`]: a later release wrote the manifest.
    /// * [`Error::Encrypted`], [`Error::NotEncrypted`], [`Error::NoKey`], [`Error::WrongKey`].
    /// * [`Error::Io`]: the directory cannot be listed or locked.
    ///
    /// The report lists the damage.
    pub fn verify(
        &self,
        path: impl AsRef<Path>,
        mut on_progress: impl FnMut(VerifyProgress),
    ) -> Result<VerifyReport> {
        verify_folder(self, path.as_ref(), &mut on_progress)
    }
}
