//! Creates, renames, clears and drops keyspaces by sequenced records in the log. The manifest
//! follows.

use std::{collections::BTreeMap, sync::Arc};

use sievedb_format::SequenceNumber;

use crate::{
    Durability, Error, KeyspaceOptions, Result,
    commit::{Always, PlacedWrite, SyncedWaiters, Write},
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::{KeyspaceCreated, KeyspaceRenamed, VersionEdit},
    read::tree::Tree,
    store::{Store, versions::keyspaces::KeyspaceChange, writer::stall::OnStall},
    version::Version,
    wal::batch::NAME_BYTES_MAX,
};

impl Store {
    /// Returns the keyspace `name`, created if missing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKeyspaceName`], those of a durable write.
    pub(crate) fn keyspace(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<Arc<Tree>> {
        if let Some(tree) = self.versions.trees().get(name) {
            return Ok(Arc::clone(tree));
        }
        check_name(name)?;
        let mut next_id = self.lock_keyspaces();
        if let Some(tree) = self.versions.trees().get(name) {
            return Ok(Arc::clone(tree));
        }
        let options = options.cloned().unwrap_or_else(|| self.options.new_keyspace());
        if options.history.is_some() {
            self.begin_history();
        }
        let (id, name) = (*next_id, name.to_owned());
        // Also if the creation fails: the log may have the record.
        *next_id += 1;
        debug_assert!(self.versions.trees().of_id(id).is_none(), "the id {id} is reused");
        let encoded = options.encode();
        let record = Write::record(1, |batch| batch.create_keyspace(id, &name, &encoded));
        let tree = Arc::new(Tree::new(
            id,
            name.clone(),
            options,
            Version::default(),
            Arc::clone(&self.tables.memory),
            Arc::clone(self.versions.trees().changed()),
        ));
        self.tables.fit_cache();
        let created = KeyspaceCreated { id, name, options: encoded };
        let change = |_| KeyspaceChange::Created(Arc::clone(&tree), created);
        self.change_keyspaces(record, change)?;
        debug_assert!(!tree.is_dropped(), "no keyspace is dropped during the change");
        Ok(tree)
    }

    /// Drops the keyspaces `names` by one record in the log and one edit of the manifest. Returns
    /// the number dropped.
    ///
    /// # Errors
    ///
    /// [`Error::RequiredKeyspace`] for the default keyspace, those of a durable write.
    pub(crate) fn drop_keyspaces<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<usize> {
        let _change = self.lock_keyspaces();
        let mut dropped = BTreeMap::new();
        for name in names {
            let name = name.as_ref();
            if name == DEFAULT_KEYSPACE {
                return Err(Error::RequiredKeyspace { name: name.to_owned() });
            }
            dropped.extend(self.versions.trees().get(name).map(|tree| (tree.id, Arc::clone(tree))));
        }
        if dropped.is_empty() {
            return Ok(0);
        }
        debug_assert!(dropped.values().all(|tree| !tree.is_dropped()), "a drop is visible at once");
        let record = Write::record(dropped.len(), |batch| {
            dropped.keys().for_each(|&id| batch.drop_keyspace(id));
        });
        let count = dropped.len();
        let dropped: Vec<_> = dropped.into_values().collect();
        let ids: Vec<_> = dropped.iter().map(|tree| tree.id).collect();
        self.change_keyspaces(record, |_| KeyspaceChange::Dropped(dropped))?;
        for id in ids {
            self.versions.snapshots().forget_keyspace(id);
            self.values.forget(id);
        }
        debug_assert!(self.versions.trees().get(DEFAULT_KEYSPACE).is_some());
        Ok(count)
    }

    /// Renames the keyspace `old` to `new`.
    ///
    /// # Errors
    ///
    /// [`Error::NoKeyspace`], [`Error::KeyspaceExists`], [`Error::InvalidKeyspaceName`],
    /// [`Error::RequiredKeyspace`] for the default keyspace, those of a durable write.
    pub(crate) fn rename_keyspace(&self, old: &str, new: &str) -> Result<()> {
        check_name(new)?;
        if old == DEFAULT_KEYSPACE {
            return Err(Error::RequiredKeyspace { name: old.to_owned() });
        }
        let _change = self.lock_keyspaces();
        let (tree, is_taken) = {
            let trees = self.versions.trees();
            (trees.get(old).cloned(), trees.get(new).is_some())
        };
        let tree = tree.ok_or_else(|| Error::NoKeyspace { name: old.to_owned() })?;
        if is_taken {
            return Err(Error::KeyspaceExists { name: new.to_owned() });
        }
        debug_assert!(!tree.is_dropped(), "a drop is visible at once");
        let (id, name) = (tree.id, new.to_owned());
        let record = Write::record(1, |batch| batch.rename_keyspace(id, new));
        self.change_keyspaces(record, |sequence| {
            KeyspaceChange::Renamed(Arc::clone(&tree), KeyspaceRenamed { id, sequence, name })
        })?;
        debug_assert_eq!(tree.name(), new, "the new name is visible");
        Ok(())
    }

    /// Removes every key of `tree`, at a cost that does not depend on their number. Snapshots and
    /// iterators keep what they see. Writes to the keyspace wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], those of a durable write.
    pub(crate) fn clear_keyspace(&self, tree: &Arc<Tree>) -> Result<()> {
        let _change = self.lock_keyspaces();
        tree.check()?;
        let (placed, logged) = self.log_keyspace_change(Write::clear(tree))?;
        let first = placed.first;
        debug_assert_eq!(tree.clear_in_flight(), Some(first));
        if logged.is_ok() {
            // The view before the clear has every entry that older snapshots see.
            self.writer.publish().wait_visible(first - 1);
            let finish = || self.writer.placement().finish_keyspace_change(true);
            self.versions.clear_keyspace(tree, first, || drop(placed), finish);
        } else {
            tree.end_clear();
            drop(placed);
            self.writer.placement().finish_keyspace_change(false);
        }
        debug_assert!(tree.clear_in_flight().is_none(), "writes go on");
        logged?;
        self.values.forget(tree.id);
        self.record_keyspace_changes();
        Ok(())
    }

    /// Makes `record` durable in the log, then the change visible that `change` returns for its
    /// sequence number, then edits the manifest.
    fn change_keyspaces(
        &self,
        record: Write,
        change: impl FnOnce(SequenceNumber) -> KeyspaceChange,
    ) -> Result<()> {
        let (placed, logged) = self.log_keyspace_change(record)?;
        let is_logged = logged.is_ok();
        let change = is_logged.then(|| change(placed.first));
        self.versions.change_keyspaces(change, || {
            self.writer.placement().finish_keyspace_change(is_logged);
        });
        let _ = placed.publish(SyncedWaiters::default());
        logged?;
        self.record_keyspace_changes();
        Ok(())
    }

    /// Begins a change of keyspaces, and makes `record` durable in the log. Returns the placed
    /// record with the result. The caller finishes the change.
    ///
    /// # Errors
    ///
    /// The record was not placed, and nothing has begun.
    fn log_keyspace_change(
        &self,
        mut record: Write,
    ) -> Result<(PlacedWrite<'_, Self>, Result<()>)> {
        // A change that panicked is never finished. It left the store read-only.
        self.versions.check_writable()?;
        self.writer.placement().begin_keyspace_change();
        let placed = self.place(OnStall::Wait, &mut record, Durability::Disk, &mut Always);
        let (placed, _) = match placed {
            Ok(Some(placed)) => placed,
            Ok(None) => unreachable!("a record without a condition is placed"),
            Err(error) => {
                self.writer.placement().finish_keyspace_change(false);
                return Err(error);
            }
        };
        let logged = self.make_durable(placed.in_flight(), Durability::Disk).map(drop);
        Ok((placed, logged))
    }

    /// Records changes in the manifest that are durable in the log.
    fn record_keyspace_changes(&self) {
        // The record in the log decides. After a full disk, background work records it in the
        // manifest, or else the next opening does. After a lasting failure the next write reports
        // the error.
        let _ = self.record_keyspaces();
        // A thread may wait for work in a dropped keyspace.
        self.scheduler.wake();
        if self.versions.is_behind() {
            // No worker retries.
            self.run_inline();
        }
    }

    /// Records the changes of keyspaces in the manifest that only the log has.
    ///
    /// # Errors
    ///
    /// As [`edit_manifest`](Store::edit_manifest).
    pub(super) fn record_keyspaces(&self) -> Result<()> {
        let is_behind = || self.versions.is_behind();
        self.edit_manifest(|_| is_behind().then(VersionEdit::default), |_| ())
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::InvalidKeyspaceName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(all(test, not(feature = "zstd")))]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        Compression, Options,
        file_name::FileName,
        fs::{Fs, MemoryFs},
    };

    #[test]
    fn a_keyspace_by_zstd_names_itself_and_the_feature() {
        let fs = Arc::new(MemoryFs::new());
        let open = || Options::new().fs(fs.clone()).worker_threads(0).open("db");
        // As a build with the feature does it.
        let options = KeyspaceOptions::new().bottommost_compression(Compression::ZSTD);
        let db = open().expect("a new store");
        db.store().keyspace("archive", Some(&options)).expect("no check of the feature");
        drop(db);
        let before = fs.contents();
        let error = open().map(drop).expect_err("this build has no zstd");
        let Error::NeedsFeature { path, keyspace, feature } = &error else { panic!("{error:?}") };
        assert_eq!((keyspace.as_deref(), *feature), (Some("archive"), "zstd"));
        assert!(path.to_string_lossy().contains("MANIFEST-"), "{path:?}");
        let want = "needs the feature zstd, which this build lacks; build sievedb with it";
        assert!(error.to_string().ends_with(want), "{error}");
        assert!(!error.to_string().contains("corrupt"), "{error}");
        assert!(fs.contents() == before, "nothing was written");
    }

    /// A dropped keyspace requires no feature, whether only the log has the drop, as after a crash,
    /// or also the manifest.
    #[test]
    fn a_dropped_keyspace_asks_for_no_feature() {
        for (name, known) in [("created in the log", false), ("created in the manifest", true)] {
            let fs = Arc::new(MemoryFs::new());
            let open = || Options::new().fs(fs.clone()).worker_threads(0).open("db");
            let options = KeyspaceOptions::new().compression(Compression::ZSTD);
            let db = open().expect("a new store");
            db.insert("key", "value").expect("there is room");
            let manifests = || {
                let files = fs.contents().into_iter();
                files.filter(|(path, _)| path.contains("MANIFEST-")).collect::<Vec<_>>()
            };
            let mut before = manifests();
            let archive = db.store().keyspace("archive", Some(&options));
            drop(archive.expect("no check of the feature"));
            if known {
                before = manifests();
            }
            assert!(db.drop_keyspace("archive").expect("there is room"));
            let logs = fs.contents();
            drop(db);
            for (path, bytes) in logs.into_iter().filter(|(path, _)| path.ends_with(".log")) {
                fs.replace(&*path, bytes).expect("it is there");
            }
            for (path, bytes) in before {
                fs.replace(&*path, bytes).expect("it is there");
            }
            // A crash instead of a close: `CLOSED` does not vouch for the manifest.
            fs.unlink(&FileName::Closed.path(Path::new("db"))).expect("it is there");
            let db = open().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(db.keyspaces().expect("it is open"), ["default"], "{name}");
            assert_eq!(db.get("key").expect("good").as_deref(), Some(&b"value"[..]), "{name}");
        }
    }
}
