//! The directories of checkpoints, whose names are numbers.
//!
//! A slot is free if no record names it and no stream reads it. Files of a slot that only streams
//! read are removed with the last of these. Directories are neither renamed nor removed.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sievedb::fs::{FileLock, Fs};

use crate::{Error, Result, claim::Claim};

/// Slots of a new directory: one for the current snapshot, and two to build or install the next. A
/// stream that reads an earlier snapshot takes one more.
const SLOTS_MIN: u8 = 3;

/// The file that the owner of the directory has locked.
const LOCK: &str = "LOCK";

/// All slots of a directory. Clones share them.
#[derive(Clone)]
pub(super) struct Slots {
    fs: Arc<dyn Fs>,
    dir: Arc<PathBuf>,
    state: Arc<Mutex<State>>,
    /// Another store would remove the files of this one. Unlocked before the claim ends.
    _lock: Arc<dyn FileLock>,
    /// Another owner of the log would use the slots that streams read.
    _claim: Arc<Claim>,
}

#[derive(Debug)]
struct State {
    /// The slots that exist have lower numbers.
    count: u8,
    /// The slots that streams read.
    leases: BTreeMap<u8, Leases>,
}

/// The streams that read a slot.
#[derive(Debug, Default)]
struct Leases {
    count: usize,
    /// The files are removed with the last of the streams.
    is_unused: bool,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Slots {
    /// Locks `dir`, and opens its slots. Creates those that every directory has.
    ///
    /// # Errors
    ///
    /// [`Error::DirectoryInUse`] if another store uses the directory.
    pub(super) fn open(fs: &Arc<dyn Fs>, dir: &Path, claim: &Arc<Claim>) -> Result<Self> {
        for slot in 0..SLOTS_MIN {
            create_dir(&**fs, &dir.join(slot.to_string()))?;
        }
        let path = dir.join(LOCK);
        let lock = fs.lock(&path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::DirectoryInUse(dir.to_owned()),
            _ => Error::at(&path)(error),
        })?;
        let mut count = SLOTS_MIN;
        // Slots are created in order.
        while count < u8::MAX {
            let next = dir.join(count.to_string());
            if !fs.exists(&next).map_err(Error::at(&next))? {
                break;
            }
            count += 1;
        }
        let state = State { count, leases: BTreeMap::new() };
        let (dir, state) = (Arc::new(dir.to_owned()), Arc::new(Mutex::new(state)));
        Ok(Self { fs: fs.clone(), dir, state, _lock: lock.into(), _claim: claim.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the directory of a slot.
    ///
    /// # Errors
    ///
    /// [`Error::Snapshot`] if there is no such slot.
    pub(super) fn path(&self, slot: u8) -> Result<PathBuf> {
        if slot < self.state().count {
            Ok(self.place(slot))
        } else {
            Err(Error::Snapshot(format!("no slot {slot}")))
        }
    }

    fn place(&self, slot: u8) -> PathBuf {
        self.dir.join(slot.to_string())
    }

    /// Removes the files of the slots that `used` does not return, now or when no stream reads
    /// them. No stream begins meanwhile.
    pub(super) fn clear(&self, used: impl FnOnce() -> Result<[Option<u8>; 2]>) -> Result<()> {
        let mut state = self.state();
        let used = used()?;
        for slot in (0..state.count).filter(|&slot| !used.contains(&Some(slot))) {
            match state.leases.get_mut(&slot) {
                Some(leases) => leases.is_unused = true,
                None => self.remove_files(slot)?,
            }
        }
        Ok(())
    }

    fn remove_files(&self, slot: u8) -> Result<()> {
        let dir = self.place(slot);
        for name in self.fs.list(&dir).map_err(Error::at(&dir))? {
            let file = dir.join(name);
            self.fs.unlink(&file).map_err(Error::at(&file))?;
        }
        Ok(())
    }

    /// Returns a slot without files that is neither in `used` nor read. Creates one if needed.
    pub(super) fn free(&self, used: &[Option<u8>]) -> Result<u8> {
        let mut state = self.state();
        let is_free = |slot: &u8| !used.contains(&Some(*slot)) && !state.leases.contains_key(slot);
        if let Some(slot) = (0..state.count).find(is_free) {
            self.remove_files(slot)?;
            return Ok(slot);
        }
        let slot = state.count;
        if slot == u8::MAX {
            return Err(Error::Snapshot("too many snapshots are read at once".to_owned()));
        }
        create_dir(&*self.fs, &self.place(slot))?;
        state.count += 1;
        Ok(slot)
    }

    /// Keeps the files of the slot that `choose` returns. The slot stays in use meanwhile.
    pub(super) fn lease<T>(
        &self,
        choose: impl FnOnce() -> Result<Option<(T, u8)>>,
    ) -> Result<Option<(T, Lease)>> {
        let mut state = self.state();
        let Some((chosen, slot)) = choose()? else { return Ok(None) };
        if slot >= state.count {
            return Err(Error::Snapshot(format!("no slot {slot}")));
        }
        state.leases.entry(slot).or_default().count += 1;
        drop(state);
        Ok(Some((chosen, Lease { slots: self.clone(), slot })))
    }
}

/// A slot whose files stay until this is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    slots: Slots,
    slot: u8,
}

impl Lease {
    pub(super) fn fs(&self) -> &dyn Fs {
        &*self.slots.fs
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.slots.place(self.slot)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        let Some(leases) = state.leases.get_mut(&self.slot) else { return };
        leases.count -= 1;
        if leases.count == 0 && state.leases.remove(&self.slot).is_some_and(|one| one.is_unused) {
            // Files that are left are removed before the slot is used again.
            let _ = self.slots.remove_files(self.slot);
        }
    }
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
