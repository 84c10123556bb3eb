//! The directory of snapshots: a checkpoint in each slot, a directory whose name is a number.
//!
//! One slot has the current snapshot, one a snapshot whose installation has begun, and one is free
//! for the next. A record in the store names the slots in use. So a snapshot is kept or dropped by
//! one commit, and directories are neither renamed nor removed.

pub(crate) mod builder;
mod files;
pub(crate) mod install;
pub(crate) mod stream;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sievedb::{Db, Durability, fs::Fs};

use self::{
    files::write_files,
    install::{applied, check},
    stream::SnapshotStream,
};
use crate::{
    Error, Options, PlantedBug, Result,
    line::Line,
    record::{INSTALLING, Kept, Records, SNAPSHOT, encode},
};

/// The file that receives a snapshot.
const INCOMING: &str = "incoming";

/// The number of slots.
const SLOTS: u8 = 3;

/// The directory, shared by the state machine and the builders of its snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    dir: Arc<PathBuf>,
    options: Arc<Options>,
    /// Held while a snapshot is built or installed: openraft may do both at once.
    turn: Arc<Mutex<()>>,
    /// Held while files are removed, or the files of the current snapshot are opened.
    files: Arc<Mutex<()>>,
}

impl Snapshots {
    /// Opens or creates the directory. Removes the files that an interrupted call has left in it,
    /// and the record of a current snapshot that is not in it: openraft builds a new one then.
    pub(crate) fn open<L: Line>(dir: &Path, options: &Options, records: &Records) -> Result<Self> {
        let fs = options.store.file_system();
        let dir = fs.absolute(dir).map_err(Error::at(dir))?;
        for slot in 0..SLOTS {
            create_dir(&**fs, &dir.join(slot.to_string()))?;
        }
        let (dir, options) = (Arc::new(dir), Arc::new(options.clone()));
        let snapshots = Self { dir, options, turn: Arc::default(), files: Arc::default() };
        snapshots.remove_incoming()?;
        snapshots.forget_missing::<L>(records)?;
        snapshots.clear_unused::<L>(records)?;
        Ok(snapshots)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    fn fs(&self) -> &dyn Fs {
        &**self.options.store.file_system()
    }

    /// Waits until no other snapshot is built or installed.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Returns the directory of a slot.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if there is no such slot.
    fn path(&self, slot: u8) -> Result<PathBuf> {
        if slot < SLOTS {
            Ok(self.dir.join(slot.to_string()))
        } else {
            Err(Error::Snapshot(format!("no slot {slot}")))
        }
    }

    /// Opens the checkpoint in a slot.
    fn open_slot(&self, slot: u8) -> Result<Db> {
        Ok(self.options.store.clone().read_only(true).open(self.path(slot)?)?)
    }

    /// Removes the record of the current snapshot if its slot has none, or another one. The
    /// directory may be a new one, or that of another node.
    fn forget_missing<L: Line>(&self, records: &Records) -> Result<()> {
        let Some(kept) = records.read::<Kept<L::Meta>>(SNAPSHOT)? else { return Ok(()) };
        let found = self.open_slot(kept.slot).and_then(|slot| applied::<L>(&slot));
        if found.is_ok_and(|found| found.log_id.as_ref() == L::last_log_id(&kept.meta)) {
            return Ok(());
        }
        let mut batch = records.db.batch();
        batch.remove(&records.keyspace, SNAPSHOT)?;
        Ok(batch.commit(Durability::Disk)?)
    }

    /// Returns a slot without a file that no record names.
    fn free_slot<L: Line>(&self, records: &Records) -> Result<u8> {
        self.clear_unused::<L>(records)?;
        let used = used::<L>(records)?;
        let free = (0..SLOTS).find(|&slot| !used.contains(&Some(slot)));
        free.ok_or_else(|| Error::Snapshot("all slots are in use".to_owned()))
    }

    /// Removes the files of the slots that no record names.
    fn clear_unused<L: Line>(&self, records: &Records) -> Result<()> {
        let _files = lock(&self.files);
        let used = used::<L>(records)?;
        for slot in (0..SLOTS).filter(|&slot| !used.contains(&Some(slot))) {
            let path = self.path(slot)?;
            for name in self.fs().list(&path).map_err(Error::at(&path))? {
                let file = path.join(name);
                self.fs().unlink(&file).map_err(Error::at(&file))?;
            }
        }
        Ok(())
    }

    /// Returns the current snapshot.
    pub(crate) fn current<L: Line>(
        &self,
        records: &Records,
    ) -> Result<Option<(L::Meta, SnapshotStream)>> {
        let _files = lock(&self.files);
        let kept = records.read::<Kept<L::Meta>>(SNAPSHOT)?;
        let Some(Kept { meta, slot }) = kept else { return Ok(None) };
        let stream = SnapshotStream::of_dir(self.fs(), &self.path(slot)?)?;
        Ok(Some((meta, stream)))
    }

    /// Returns an empty stream, which a snapshot is written to.
    pub(crate) fn incoming(&self) -> Result<SnapshotStream> {
        self.remove_incoming()?;
        SnapshotStream::incoming(self.fs(), &self.dir.join(INCOMING))
    }

    fn remove_incoming(&self) -> Result<()> {
        let path = self.dir.join(INCOMING);
        match self.fs().unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::at(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Writes the received `stream` to a free slot, checks every file in it, and records in the
    /// store that it is to be installed. Returns the record.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if it is not whole, or not the snapshot `meta`. Nothing is changed then.
    pub(crate) fn receive<L: Line>(
        &self,
        records: &Records,
        meta: &L::Meta,
        stream: SnapshotStream,
    ) -> Result<Kept<L::Meta>> {
        let meta = meta.clone();
        let current = records.read::<Kept<L::Meta>>(SNAPSHOT)?;
        let kept = match current.filter(|current| current.meta == meta) {
            Some(current) => Kept { meta, slot: current.slot },
            None => {
                let slot = self.free_slot::<L>(records)?;
                let sync = !self.options.has_bug(PlantedBug::UnsyncedSnapshot);
                let written = write_files(self.fs(), stream, &self.path(slot)?, sync)
                    .and_then(|()| check::<L>(&self.open_slot(slot)?, &meta));
                if written.is_err() {
                    self.clear_unused::<L>(records)?;
                }
                written?;
                self.remove_incoming()?;
                Kept { meta, slot }
            }
        };
        if !self.options.has_bug(PlantedBug::UnrecordedInstallation) {
            let mut batch = records.db.batch();
            batch.insert(&records.keyspace, INSTALLING, encode(&kept)?)?;
            batch.commit(Durability::Disk)?;
        }
        Ok(kept)
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the slots that records name.
fn used<L: Line>(records: &Records) -> Result<[Option<u8>; 2]> {
    let slot = |key| Ok::<_, Error>(records.read::<Kept<L::Meta>>(key)?.map(|kept| kept.slot));
    Ok([slot(SNAPSHOT)?, slot(INSTALLING)?])
}

/// Creates the directory `dir` and its missing parents durably.
fn create_dir(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for dir in dir.ancestors() {
        if fs.exists(dir).map_err(Error::at(dir))? {
            break;
        }
        missing.push(dir);
    }
    fs.create_dir(dir).map_err(Error::at(dir))?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        fs.sync_dir(parent).map_err(Error::at(parent))?;
    }
    Ok(())
}
