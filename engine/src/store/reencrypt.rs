//! Rewrites the files that are encrypted by other root keys than the current one.
//!
//! Log and manifest continue in new files. An atomic rename replaces the stored file of a table,
//! filter or finished log segment. The logical file stays the same.

use std::{collections::BTreeSet, io};

use super::Store;
use crate::{
    Error, Reencryption, Result, encryption::EncryptedFs, error::SYNC, file_name::FileName,
    fs::existing, manifest::ManifestState, table::obsolete::Hold,
};

impl Store {
    /// Rewrites all files of other root keys.
    ///
    /// # Errors
    ///
    /// As [`Db::reencrypt`](crate::Db::reencrypt).
    pub(crate) fn reencrypt(&self) -> Result<Reencryption> {
        let folder = &*self.tables.folder;
        let Some(files) = self.target.encrypted() else {
            return Err(Error::NotEncrypted { path: folder.to_owned() });
        };
        self.versions.check_writable()?;
        let _turn = files.turn();
        let _call = self.tables.file_calls.begin()?;
        let current = files.current_key_id().map_err(|error| Error::io("open", folder, error))?;
        let mut done = Reencryption::default();
        let has_others = match self.used_keys(files) {
            // The others may use another key. The rewrite reports the error.
            Err(error) if error.is_of_file() => true,
            ids => ids?.iter().any(|&id| id != current),
        };
        let mut rewritten = Ok(());
        if has_others {
            self.leave_files()?;
            rewritten = self.rewrite_files(files, current, &mut done);
        }
        {
            let _unlinking = self.scheduler.begin_unlinks().ok_or(Error::Closed)?;
            self.tables.unlink_obsolete(usize::MAX)?;
        }
        // Also of the renames by an earlier call that failed.
        self.tables.fs.sync_dir(folder).map_err(|error| Error::io(SYNC, folder, error))?;
        rewritten?;
        done.key_ids = self.used_keys(files)?.into_iter().collect();
        Ok(done)
    }

    /// Flushes the memtables, and continues log and manifest in new files.
    fn leave_files(&self) -> Result<()> {
        let trees: Vec<_> = self.versions.trees().values().cloned().collect();
        self.flush_trees(&trees)?;
        self.writer.log().leave(self)?;
        self.versions.leave_manifest();
        self.renew_manifest()?;
        let closed = FileName::Closed.path(&self.tables.folder);
        // The next close writes it again.
        let unlinked = existing(self.tables.fs.unlink(&closed));
        unlinked.map(drop).map_err(|error| Error::io("remove", closed, error))
    }

    /// Rewrites finished tables, filters, blob files and segments. A damaged or unreadable one
    /// stays, and is the error.
    fn rewrite_files(
        &self,
        files: &EncryptedFs,
        current: u64,
        done: &mut Reencryption,
    ) -> Result<()> {
        let folder = &*self.tables.folder;
        let active = self.writer.log().written_to().file_id;
        // Flushes and compactions may still write a file that the manifest does not name.
        let named = self.versions.read_manifest(|manifest| named_files(manifest.state()));
        let (names, _hold) = self.held_names()?;
        let mut damaged = None;
        for name in names.iter().filter_map(|name| FileName::parse(name)) {
            let is_finished = match name {
                FileName::Table(id) | FileName::Filter(id) | FileName::Blobs(id) => {
                    named.contains(&id)
                }
                FileName::Log(id) => id < active,
                _ => false,
            };
            let path = name.path(folder);
            if !is_finished {
                continue;
            }
            let key = match self.key_of(files, name) {
                Err(error) if error.is_of_file() => {
                    damaged = damaged.or(Some(error));
                    continue;
                }
                key => key?,
            };
            if key.is_none_or(|id| id == current) {
                continue;
            }
            self.tables.check_not_closing()?;
            let rewritten = files.rewrite(&path, &|| self.tables.is_closing());
            match rewritten.map_err(|(op, error)| Error::io(op, &path, error)) {
                Ok(bytes) => {
                    done.files_rewritten += 1;
                    done.bytes_rewritten += bytes;
                    if let FileName::Table(id) | FileName::Blobs(id) = name {
                        self.tables.reopen(id);
                    }
                }
                Err(_) if self.tables.is_closing() => return Err(Error::Closed),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.is_of_file() => damaged = damaged.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        damaged.map_or(Ok(()), Err)
    }

    /// Lists the directory, and keeps its files meanwhile.
    fn held_names(&self) -> Result<(Vec<String>, Hold)> {
        let folder = &*self.tables.folder;
        // A hold has no effect on files that a thread is unlinking.
        let _unlinking = self.scheduler.begin_unlinks().ok_or(Error::Closed)?;
        let names = self.tables.fs.list(folder);
        let names = names.map_err(|error| Error::io("list", folder, error))?;
        let ids = names.iter().filter_map(|name| FileName::parse(name)?.id()).collect();
        Ok((names, self.tables.obsolete_files.hold(ids)))
    }

    /// Returns the ids of the root keys that files of the store use.
    fn used_keys(&self, files: &EncryptedFs) -> Result<BTreeSet<u64>> {
        let (names, _hold) = self.held_names()?;
        let names = names.iter().filter_map(|name| FileName::parse(name));
        let names = names.filter(|name| !matches!(name, FileName::Lock | FileName::Temporary(_)));
        let mut ids = BTreeSet::new();
        for name in names {
            ids.extend(self.key_of(files, name)?);
        }
        Ok(ids)
    }

    /// Returns the id of the root key of a file; `None` if it is gone or damaged.
    fn key_of(&self, files: &EncryptedFs, name: FileName<'_>) -> Result<Option<u64>> {
        let path = name.path(&self.tables.folder);
        match files.key_id(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => match found.map_err(|error| Error::io("read", &path, error)) {
                Err(Error::Corrupt { .. }) => Ok(None),
                found => found,
            },
        }
    }
}

/// Returns the ids of all tables, filters and blob files that the manifest names.
fn named_files(state: &ManifestState) -> BTreeSet<u64> {
    let tables = state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let files = tables.flat_map(|table| {
        [table.id].into_iter().chain(table.filter_files()).chain(table.blob_file_ids())
    });
    files.collect()
}
