//! The directory of snapshots: a checkpoint in each slot.
//!
//! One slot has the current snapshot, one a snapshot that is being installed, and other slots are
//! free. Records in the store name the slots in use, so one commit keeps or drops a snapshot.

pub(crate) mod builder;
mod files;
pub(crate) mod install;
mod slots;
pub(crate) mod stream;
pub(crate) mod transfer;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sievedb::{
    Db, Durability, Error as StoreError, fs::Fs, options::MEMORY_BUDGET_MIN, stats::BudgetSource,
};

use self::{
    files::{Checkpoint, write_files},
    install::{applied, check},
    slots::Slots,
    stream::SnapshotStream,
    transfer::Transfer,
};
use crate::{
    Error, Options, PlantedBug, Result,
    claim::Claim,
    record::{INSTALLING, Kept, Records, SNAPSHOT, encode},
    series::Series,
};

/// The file that receives a snapshot.
const INCOMING: &str = "incoming";

/// Memory of an open slot, without the entries in its log, which are read in order and without
/// filters.
const SLOT_MEMORY_BYTES: u64 = MEMORY_BUDGET_MIN;

/// Limit of memtables of an open slot, which has none but those of its log: the least.
const SLOT_MEMTABLE_BYTES: u64 = 512 << 10;

/// The directory, shared by the state machine and the builders of its snapshots.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    dir: Arc<PathBuf>,
    slots: Slots,
    options: Arc<Options>,
    /// Options of the store in a slot.
    slot_options: sievedb::Options,
    /// Held while a snapshot is built or installed: openraft may do both at once.
    turn: Arc<Mutex<()>>,
    /// The transfer to this node. Held while the file of a transfer is created.
    transfer: Arc<Mutex<Option<Transfer>>>,
}

impl Snapshots {
    /// Opens or creates the directory. Removes the files of interrupted calls. If the current
    /// snapshot is not in the directory, removes its record, and openraft builds a new snapshot.
    pub(crate) fn open<S: Series>(
        dir: &Path,
        options: &Options,
        records: &Records,
        claim: &Arc<Claim>,
    ) -> Result<Self> {
        let fs = options.store.file_system();
        let dir = fs.absolute(dir).map_err(Error::at(dir))?;
        let snapshots = Self {
            slots: Slots::open(fs, &dir, claim)?,
            dir: Arc::new(dir),
            options: Arc::new(options.clone()),
            slot_options: slot_options(&options.store, &records.db),
            turn: Arc::default(),
            transfer: Arc::default(),
        };
        snapshots.remove_incoming()?;
        snapshots.forget_missing::<S>(records)?;
        snapshots.clear_unused::<S>(records)?;
        if used::<S>(records)? == [None; 2] {
            snapshots.try_checkpoint::<S>(records)?;
        }
        Ok(snapshots)
    }

    /// Creates, opens and removes a checkpoint. Options that do not fit the store, or a directory
    /// inside it, would stop the node only at its first snapshot. A full disk is no error: the node
    /// can use its store.
    fn try_checkpoint<S: Series>(&self, records: &Records) -> Result<()> {
        let slot = self.free_slot::<S>(records)?;
        match records.db.checkpoint(self.path(slot)?) {
            Err(error) if error.is_no_space() => return self.clear_unused::<S>(records),
            created => drop(created?),
        }
        let opened = self.open_slot(slot).map(drop);
        self.clear_unused::<S>(records)?;
        opened
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
        self.slots.path(slot)
    }

    /// Opens the checkpoint in a slot.
    fn open_slot(&self, slot: u8) -> Result<Db> {
        Ok(self.slot_options.clone().open(self.path(slot)?)?)
    }

    /// Removes the record of the current snapshot if its slot has none, another one, or a damaged
    /// one. The directory may be a new one, or that of another node. After any other error the
    /// snapshot may be complete.
    fn forget_missing<S: Series>(&self, records: &Records) -> Result<()> {
        let Some(kept) = records.read::<Kept<S::Meta>>(SNAPSHOT)? else { return Ok(()) };
        match self.open_slot(kept.slot).and_then(|slot| applied::<S>(&slot)) {
            Ok(found) if found.log_id.as_ref() == S::last_log_id(&kept.meta) => return Ok(()),
            Ok(_) | Err(Error::Snapshot(_) | Error::ReleaseSeries(_) | Error::Encoding(_)) => {}
            Err(Error::Store(StoreError::NoStore { .. } | StoreError::Corrupt { .. })) => {}
            Err(error) => return Err(error),
        }
        let mut batch = records.db.batch();
        batch.remove(&records.keyspace, SNAPSHOT)?;
        batch.commit(Durability::Disk)?;
        Ok(())
    }

    /// Returns a slot without a file that no record names.
    fn free_slot<S: Series>(&self, records: &Records) -> Result<u8> {
        self.clear_unused::<S>(records)?;
        self.slots.free(&used::<S>(records)?)
    }

    /// Removes the files of the slots that no record names.
    fn clear_unused<S: Series>(&self, records: &Records) -> Result<()> {
        self.slots.clear(|| used::<S>(records))
    }

    /// Returns the current snapshot.
    pub(crate) fn current<S: Series>(
        &self,
        records: &Records,
    ) -> Result<Option<(S::Meta, SnapshotStream)>> {
        let kept = || records.read::<Kept<S::Meta>>(SNAPSHOT);
        let current = self.slots.lease(|| Ok(kept()?.map(|kept| (kept.meta, kept.slot))))?;
        let Some((meta, lease)) = current else { return Ok(None) };
        Ok(Some((meta, SnapshotStream::of(Checkpoint::open(lease)?))))
    }

    /// Returns an empty stream to write a snapshot to.
    pub(crate) fn incoming(&self) -> Result<SnapshotStream> {
        let _transfer = self.transfer();
        SnapshotStream::incoming(self.fs(), &self.incoming_path())
    }

    /// Returns the transfer to this node.
    fn transfer(&self) -> MutexGuard<'_, Option<Transfer>> {
        lock(&self.transfer)
    }

    fn incoming_path(&self) -> PathBuf {
        self.dir.join(INCOMING)
    }

    /// Removes the file that a crash left before it was unlinked.
    fn remove_incoming(&self) -> Result<()> {
        let path = self.incoming_path();
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
    /// [`Error::Snapshot`] if it is incomplete or not the snapshot `meta`. Nothing is changed then.
    pub(crate) fn receive<S: Series>(
        &self,
        records: &Records,
        meta: &S::Meta,
        stream: SnapshotStream,
    ) -> Result<Kept<S::Meta>> {
        let meta = meta.clone();
        let current = records.read::<Kept<S::Meta>>(SNAPSHOT)?;
        let kept = match current.filter(|current| current.meta == meta) {
            Some(current) => Kept { meta, slot: current.slot },
            None => {
                let slot = self.free_slot::<S>(records)?;
                let sync = !self.options.has_bug(PlantedBug::UnsyncedSnapshot);
                let written = write_files(self.fs(), stream, &self.path(slot)?, sync)
                    .and_then(|()| check::<S>(&self.open_slot(slot)?, &meta));
                if written.is_err() {
                    self.clear_unused::<S>(records)?;
                }
                written?;
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the slots that records name.
fn used<S: Series>(records: &Records) -> Result<[Option<u8>; 2]> {
    let slot = |key| Ok::<_, Error>(records.read::<Kept<S::Meta>>(key)?.map(|kept| kept.slot));
    Ok([slot(SNAPSHOT)?, slot(INSTALLING)?])
}

/// Returns options of the store in a slot, which is only read.
///
/// In a pool its memory is that of the pool.
fn slot_options(store: &sievedb::Options, db: &Db) -> sievedb::Options {
    let options = store.clone().create_new(false).read_only(true);
    let options = options.worker_threads(0).filter_bytes_max(0);
    match db.stats().memory.budget_source {
        Some(BudgetSource::Pool) => options,
        _ => options
            .memory_budget(SLOT_MEMORY_BYTES)
            .memtable_bytes_max(SLOT_MEMTABLE_BYTES)
            .block_cache_bytes(SLOT_MEMORY_BYTES / 2),
    }
}

#[cfg(test)]
mod tests {
    use sievedb::{MemoryPool, options::MEMORY_BUDGET_MIN, stats::BudgetSource};

    use super::slot_options;

    #[test]
    fn an_open_slot_takes_little_memory_whatever_the_options_of_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let (set, pool) = (sievedb::Options::new(), MemoryPool::new(64 << 20));
        let by_hand = set.clone().memtable_bytes_max(64 << 20).filter_bytes_max(64 << 20);
        for (name, options) in [
            ("default", set.clone()),
            ("new", set.clone().create_new(true)),
            ("budget", set.clone().memory_budget(512 << 20).worker_threads(8)),
            ("parts", by_hand.block_cache_bytes(64 << 20)),
            ("pool", set.memory_pool(&pool)),
        ] {
            let path = dir.path().join(name);
            let db = options.clone().open(&path).unwrap();
            db.insert("key", "value").unwrap();
            let slot = slot_options(&options, &db);
            drop(db);
            let db = slot.open(&path).unwrap();
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{name}");
            let memory = db.stats().memory;
            assert_eq!(memory.filter_bytes_max, 0, "{name}");
            if name == "pool" {
                assert_eq!(memory.budget_source, Some(BudgetSource::Pool));
            } else {
                assert_eq!(memory.budget_bytes, MEMORY_BUDGET_MIN, "{name}");
            }
        }
    }
}
