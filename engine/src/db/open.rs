//! Opening and verifying a store.

use std::{path::Path, sync::Arc};

use super::Db;
#[cfg(doc)]
use crate::Durability;
use crate::{
    Keyspace, Options, ReadOptions, Result, VerifyProgress, VerifyReport,
    default_budget::DefaultBudget,
    handle::Handle,
    handle_counts::HandleKind,
    keyspace_options::DEFAULT_KEYSPACE,
    store::{open_store::OpenStore, verify::verify_folder},
};

impl Options {
    /// Opens the store in the folder `path`, or creates it if the folder is missing, or has no
    /// files, unless [`create_if_missing`](Self::create_if_missing) or
    /// [`read_only`](Self::read_only) says otherwise.
    ///
    /// Everything acknowledged before is there again, as far as its [`Durability`] promised.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`](crate::Error::Locked) if the store is open,
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a file was damaged,
    /// [`Error::NeedsFeature`](crate::Error::NeedsFeature) if tables or keyspaces are compressed by
    /// zstd and this build lacks the feature `zstd`,
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for an option out of range,
    /// [`Error::BudgetTooSmall`](crate::Error::BudgetTooSmall) for a memory budget, or a part of
    /// it, that is, [`Error::ForeignDirectory`](crate::Error::ForeignDirectory) for a folder with files
    /// of others and no store, [`Error::NotADirectory`](crate::Error::NotADirectory) for a file,
    /// [`Error::NoStore`](crate::Error::NoStore) for one without a store where none is to be made,
    /// [`Error::StoreExists`](crate::Error::StoreExists) for an existing store with
    /// [`create_new`](Self::create_new), [`Error::NewerRelease`](crate::Error::NewerRelease) if a
    /// later release wrote a file of the store, [`Error::Io`](crate::Error::Io).
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

    /// Looks at every byte of the store in the folder `path`, as [`Db::verify`] does. Nobody has it
    /// open, unless [read-only](Self::read_only). Goes on where an open would be refused, and
    /// writes nothing: it needs no more than the right to read. Of the options the file system
    /// counts.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`](crate::Error::NoStore) for a folder that is missing or holds nothing of a
    /// store, [`Error::NotADirectory`](crate::Error::NotADirectory) for a file,
    /// [`Error::Locked`](crate::Error::Locked) if the store is open,
    /// [`Error::NewerRelease`](crate::Error::NewerRelease) if a later release wrote the manifest,
    /// [`Error::Io`](crate::Error::Io) if the directory cannot be listed or locked. What is wrong
    /// with the files is in the report.
    pub fn verify(
        &self,
        path: impl AsRef<Path>,
        mut on_progress: impl FnMut(VerifyProgress),
    ) -> Result<VerifyReport> {
        verify_folder(self, path.as_ref(), &mut on_progress)
    }
}
