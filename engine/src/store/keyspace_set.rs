//! Keyspaces are created and dropped by sequenced records in the log; the manifest follows.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Durability, Error, KeyspaceOptions, Result,
    commit::{Always, Write},
    keyspace_options::DEFAULT_KEYSPACE,
    manifest::{KeyspaceCreated, VersionEdit},
    read::tree::Tree,
    store::Store,
    sync::atomic::Ordering::Relaxed,
    version::Version,
    wal::batch::NAME_BYTES_MAX,
};

/// Changes of the keyspaces that are durable in the log, and that the manifest does not know of:
/// every edit takes them along until one succeeds.
#[derive(Debug, Default)]
pub(crate) struct Unrecorded {
    created: Vec<KeyspaceCreated>,
    dropped: Vec<Arc<Tree>>,
}

impl Unrecorded {
    /// Adds the changes to `edit`.
    pub(crate) fn add_to(&self, edit: &mut VersionEdit) {
        edit.keyspaces_created.extend(self.created.iter().cloned());
        edit.keyspaces_dropped.extend(self.dropped.iter().map(|tree| tree.id));
        let next = self.created.iter().map(|created| created.id + 1).max();
        edit.next_keyspace_id = edit.next_keyspace_id.max(next);
    }

    /// The manifest knows the changes now: the tables of dropped keyspaces are obsolete. Whether
    /// there were any changes.
    pub(crate) fn record(&mut self) -> bool {
        let any = !self.created.is_empty() || !self.dropped.is_empty();
        for tree in &self.dropped {
            tree.discard();
        }
        *self = Self::default();
        any
    }
}

impl Store {
    /// The keyspace `name`, created if missing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidKeyspaceName`], those of a durable write.
    pub(crate) fn keyspace(
        &self,
        name: &str,
        options: Option<&KeyspaceOptions>,
    ) -> Result<Arc<Tree>> {
        if let Some(tree) = self.trees.read().get(name) {
            return Ok(Arc::clone(tree));
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::InvalidKeyspaceName { name: name.to_owned() });
        }
        let _change = self.keyspace_change.lock();
        if let Some(tree) = self.trees.read().get(name) {
            return Ok(Arc::clone(tree));
        }
        let options = options.cloned().unwrap_or_else(|| self.options.new_keyspace());
        let id = self.next_keyspace_id.fetch_add(1, Relaxed);
        let encoded = options.encode();
        let record = Write::record(1, |batch| batch.create_keyspace(id, name, &encoded));
        let tree = Arc::new(Tree::new(
            id,
            name.to_owned(),
            options,
            Version::default(),
            Arc::clone(&self.tables.memory),
            Arc::clone(self.trees.read().changed()),
        ));
        self.tables.fit_cache();
        self.change_keyspaces(record, |unrecorded| {
            let name = name.to_owned();
            self.trees.write().insert(Arc::clone(&tree));
            unrecorded.created.push(KeyspaceCreated { id, name, options: encoded });
        })?;
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
        let _change = self.keyspace_change.lock();
        let mut dropped = BTreeMap::new();
        for name in names {
            let name = name.as_ref();
            if name == DEFAULT_KEYSPACE {
                return Err(Error::RequiredKeyspace { name: name.to_owned() });
            }
            dropped.extend(self.trees.read().get(name).map(|tree| (tree.id, Arc::clone(tree))));
        }
        if dropped.is_empty() {
            return Ok(0);
        }
        let record = Write::record(dropped.len(), |batch| {
            dropped.keys().for_each(|&id| batch.drop_keyspace(id));
        });
        let count = dropped.len();
        self.change_keyspaces(record, |unrecorded| {
            let mut trees = self.trees.write();
            for tree in dropped.into_values() {
                tree.mark_dropped();
                trees.remove(&tree.name);
                unrecorded.dropped.push(tree);
            }
        })?;
        Ok(count)
    }

    /// Makes `record` durable in the log, does `install`, and tells the manifest.
    fn change_keyspaces(
        &self,
        mut record: Write,
        install: impl FnOnce(&mut Unrecorded),
    ) -> Result<()> {
        self.placement.lock().begin_keyspace_change();
        let placed = self.place(&mut record, Durability::Disk, &mut Always);
        let (placed, _) = match placed {
            Ok(Some(placed)) => placed,
            Ok(None) => unreachable!("a record without a condition is placed"),
            Err(error) => {
                self.placement.lock().finish_keyspace_change(false);
                return Err(error);
            }
        };
        let durable = self.make_durable(&placed, Durability::Disk);
        {
            let _manifest = self.manifest.lock();
            if durable.is_ok() {
                install(&mut self.unrecorded.lock());
            }
            self.placement.lock().finish_keyspace_change(durable.is_ok());
        }
        let _ = placed.publish();
        durable?;
        // The log has the record, and that decides. The manifest gets it when there is room, or
        // when the store is opened again; if it failed for good, the next write is told.
        let _ = self.edit_manifest(|_| Some(VersionEdit::default()), |_| ());
        // Whoever waits for a keyspace that is gone waits no longer.
        self.background.wake();
        Ok(())
    }
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
        db.store().keyspace("archive", Some(&options)).expect("nobody looks");
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

    /// Nothing of a keyspace that is gone is needed any more, whoever knows that it is: the log
    /// alone, as here after a crash, or the manifest.
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
            drop(archive.expect("nobody looks"));
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
            // No close, but a crash: nobody vouches for the manifest.
            fs.unlink(&FileName::Closed.path(Path::new("db"))).expect("it is there");
            let db = open().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(db.keyspaces(), ["default"], "{name}");
            assert_eq!(db.get("key").expect("good").as_deref(), Some(&b"value"[..]), "{name}");
        }
    }
}
