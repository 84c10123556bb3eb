//! The lock of a set in an object store.
//!
//! The lock is the object `LOCK`, which only one writer can create. It contains a random number,
//! and remains after a crash. A writer compares the number before it stores a record, so it detects
//! a broken lock. A process keeps its number: a request without a response may have created the
//! lock or left it. The next call then takes the lock over.

use std::{
    fmt::{self, Debug},
    io, process,
};

use bytes::Bytes;
use object_store::PutMode;

use super::Remote;
use crate::{
    backup::objects::ObjectStore as _,
    fs::{FileLock, existing},
};

pub(super) const LOCK: &str = "LOCK";

/// The lock of this process.
#[derive(Debug, Default)]
pub(super) struct OwnLock {
    /// The process id and its number in the lock: a forked child draws another number.
    number: Option<(u32, u64)>,
    is_held: bool,
}

impl OwnLock {
    /// Returns the number of this process.
    fn number(&mut self) -> io::Result<u64> {
        let process = process::id();
        if let Some((_, number)) = self.number.filter(|(of, _)| *of == process) {
            return Ok(number);
        }
        let number = getrandom::u64().map_err(io::Error::other)?;
        *self = Self { number: Some((process, number)), is_held: false };
        Ok(number)
    }
}

impl Remote {
    /// Returns `true` if the lock has this number.
    fn is_locked_by(&self, number: u64) -> io::Result<bool> {
        Ok(existing(self.get(LOCK))?.is_some_and(|found| *found == number.to_le_bytes()))
    }

    /// Returns an error if another process broke the lock.
    pub(super) fn check_lock(&self) -> io::Result<()> {
        let number = {
            let mut own = self.lock.lock();
            let number = own.number()?;
            if !own.is_held {
                return Ok(());
            }
            number
        };
        match self.is_locked_by(number)? {
            true => Ok(()),
            false => Err(io::Error::other("another process broke the lock of the backup set")),
        }
    }

    /// Creates the lock, or takes over a lock that an earlier request of this process left.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another call or another process has the lock; errors of requests.
    pub(super) fn take_lock(&self) -> io::Result<Box<dyn FileLock>> {
        let mut own = self.lock.lock();
        let number = own.number()?;
        let is_locked = || io::Error::from(io::ErrorKind::WouldBlock);
        if own.is_held {
            return Err(is_locked());
        }
        match self.put(LOCK, Bytes::copy_from_slice(&number.to_le_bytes()), PutMode::Create) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !self.is_locked_by(number)? {
                    return Err(is_locked());
                }
            }
            created => created?,
        }
        own.is_held = true;
        Ok(Box::new(RemoteLock { remote: self.clone(), number }))
    }
}

struct RemoteLock {
    remote: Remote,
    number: u64,
}

impl Debug for RemoteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteLock").field(&self.remote).finish()
    }
}

impl FileLock for RemoteLock {}

impl Drop for RemoteLock {
    fn drop(&mut self) {
        let mut own = self.remote.lock.lock();
        // If this fails, the next call of this set takes the lock over. A broken lock belongs to
        // another writer.
        if self.remote.is_locked_by(self.number).unwrap_or(false) {
            let _ = self.remote.delete(LOCK);
        }
        own.is_held = false;
    }
}
