//! The lock of changes of keyspaces.

use std::ops::{Deref, DerefMut};

use super::Store;
use crate::{commit::PublishQueue, sync::MutexGuard};

/// The lock, held during a change. Holds the id of the next keyspace.
#[derive(Debug)]
pub(super) struct KeyspacesLock<'a> {
    next_id: MutexGuard<'a, u64>,
    /// Dropped last.
    _wakes: WakesAfter<'a>,
}

/// Wakes the tasks that wait for visible writes when it is dropped.
///
/// Waking a task may drop it and its snapshot, whose drop takes the lock held by the change.
#[derive(Debug)]
struct WakesAfter<'a>(&'a PublishQueue);

impl Store {
    /// Begins to create, rename, drop or clear keyspaces, or to install ingested tables.
    pub(super) fn lock_keyspaces(&self) -> KeyspacesLock<'_> {
        let _wakes = WakesAfter(self.writer.publish());
        KeyspacesLock { next_id: self.versions.lock_keyspaces(), _wakes }
    }
}

impl Deref for KeyspacesLock<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.next_id
    }
}

impl DerefMut for KeyspacesLock<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.next_id
    }
}

impl Drop for WakesAfter<'_> {
    fn drop(&mut self) {
        self.0.notify();
    }
}
