//! The directory of snapshots: one checkpoint for each, named by the id of the snapshot.

pub(crate) mod builder;
mod files;
pub(crate) mod install;
pub(crate) mod stream;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use openraft::Snapshot;
use sievedb::Durability;

use self::{files::write_files, install::check, stream::SnapshotStream};
use crate::{
    Error, Result, Types,
    record::{INSTALLING, Meta, Records, SNAPSHOT, encode},
};

/// The file that receives a snapshot. No id is equal to it: ids have a hyphen.
const INCOMING: &str = "incoming";

/// The directory, shared by the state machine and what builds its snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    dir: Arc<PathBuf>,
    /// Held while a snapshot is built or installed: openraft may do both at once.
    turn: Arc<Mutex<()>>,
}

impl Snapshots {
    /// Opens or creates the directory. Removes what an interrupted call has left in it.
    pub(crate) fn open<C: Types>(dir: &Path, records: &Records) -> Result<Self> {
        fs::create_dir_all(dir).map_err(Error::at(dir))?;
        let snapshots = Self { dir: Arc::new(dir.to_owned()), turn: Arc::default() };
        remove(&snapshots.dir.join(INCOMING))?;
        snapshots.remove_unknown::<C>(records)?;
        Ok(snapshots)
    }

    /// Waits until no other snapshot is built or installed.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directory of the snapshot `id`.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if `id`, which may come from another node, is not a plain file name.
    fn path(&self, id: &str) -> Result<PathBuf> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if id.contains('-') && id.chars().all(plain) {
            Ok(self.dir.join(id))
        } else {
            Err(Error::Snapshot(format!("id {id:?}")))
        }
    }

    /// Removes the directories that no record names.
    fn remove_unknown<C: Types>(&self, records: &Records) -> Result<()> {
        let known = [records.read::<Meta<C>>(SNAPSHOT)?, records.read(INSTALLING)?];
        for entry in fs::read_dir(&*self.dir).map_err(Error::at(&self.dir))? {
            let entry = entry.map_err(Error::at(&self.dir))?;
            let name = entry.file_name();
            if name != INCOMING && !known.iter().flatten().any(|meta| name == *meta.snapshot_id) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the current snapshot.
    pub(crate) fn current<C: Types>(&self, records: &Records) -> Result<Option<Snapshot<C>>> {
        let Some(meta) = records.read::<Meta<C>>(SNAPSHOT)? else { return Ok(None) };
        let stream = SnapshotStream::of_dir(&self.path(&meta.snapshot_id)?)?;
        Ok(Some(Snapshot { meta, snapshot: Box::new(stream) }))
    }

    /// Returns an empty stream, which a snapshot is written to.
    pub(crate) fn incoming(&self) -> Result<SnapshotStream> {
        let path = self.dir.join(INCOMING);
        remove(&path)?;
        SnapshotStream::incoming(&path)
    }

    /// Makes a directory of the received `stream`, checks every file in it, and notes in the store
    /// that it is to be installed.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if it is not whole, or not what `meta` says. Nothing is changed then.
    pub(crate) fn receive<C: Types>(
        &self,
        records: &Records,
        meta: &Meta<C>,
        stream: SnapshotStream,
    ) -> Result<()> {
        let path = self.path(&meta.snapshot_id)?;
        let current = records.read::<Meta<C>>(SNAPSHOT)?;
        if current.is_none_or(|current| current.snapshot_id != meta.snapshot_id) {
            remove(&path)?;
            let written = write_files(stream, &path).and_then(|()| check::<C>(&path, meta));
            if written.is_err() {
                remove(&path)?;
            }
            written?;
            self.sync()?;
            remove(&self.dir.join(INCOMING))?;
        }
        let mut batch = records.db.batch();
        batch.insert(&records.keyspace, INSTALLING, encode(meta)?)?;
        Ok(batch.commit(Durability::Disk)?)
    }

    /// Makes the names in the directory durable.
    fn sync(&self) -> Result<()> {
        File::open(&*self.dir).and_then(|dir| dir.sync_all()).map_err(Error::at(&self.dir))
    }
}

/// Removes a file or a directory, if it exists.
fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::at(path)(error)),
        _ => Ok(()),
    }
}
