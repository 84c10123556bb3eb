//! Values that expire, and a wall clock that jumps while the store is closed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sievedb::clock::ManualClock;

use super::{DEFAULT_DURABILITY, Recorder};
use crate::model::Change;

/// Time to live of values that expire, also the default TTL of keyspaces. Nothing lasts as long
/// within one opening, and each jump is longer.
pub const TTL: Duration = Duration::from_secs(3600);

/// Length of a jump.
const JUMP: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl Recorder {
    /// Stores a new value of `bytes` bytes that expires.
    pub fn insert_expiring(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        let change = self.new_expiring(keyspace, key, bytes, false);
        self.write(vec![change], DEFAULT_DURABILITY);
    }

    /// Stores a new value of `bytes` bytes without an expiry of its own: it expires if the keyspace
    /// has a default TTL.
    pub fn insert_by_default(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        let change = self.new_by_default(keyspace, key, bytes);
        self.write(vec![change], DEFAULT_DURABILITY);
    }

    /// Returns the change of [`insert_by_default`](Self::insert_by_default).
    pub fn new_by_default(
        &mut self,
        keyspace: &str,
        key: impl Into<Bytes>,
        bytes: usize,
    ) -> Change {
        let handle = self.handle(keyspace);
        if handle.is_some_and(|it| it.options().get_default_ttl().is_some()) {
            return self.new_expiring(keyspace, key, bytes, true);
        }
        let value = self.new_value(bytes);
        Change::Put { keyspace: keyspace.into(), key: key.into(), value }
    }

    /// Returns a put of a new value that expires.
    pub fn new_expiring(
        &mut self,
        keyspace: &str,
        key: impl Into<Bytes>,
        bytes: usize,
        by_default: bool,
    ) -> Change {
        let value = self.new_value(bytes);
        Change::PutExpiring { keyspace: keyspace.into(), key: key.into(), value, by_default }
    }

    /// Changes the default TTL of a keyspace, if it exists.
    pub fn set_default_ttl(&mut self, name: &str, ttl: Option<Duration>) {
        let Some(handle) = self.handle(name).cloned() else { return };
        let set = handle.set_options(handle.options().default_ttl(ttl));
        self.accept("set a default TTL", set);
    }

    /// Closes the store, and reopens it after the wall clock went forward by more than [`TTL`]:
    /// every value that expires is gone. Only reopens it where calls may fail: a crash may undo a
    /// jump, but such a history takes what each opening finds for durable.
    ///
    /// # Panics
    ///
    /// If the contents of the store are not legal.
    pub fn jump(&mut self) {
        if self.failures.is_some() {
            return self.reopen();
        }
        self.close();
        self.jumps += 1;
        let clock = ManualClock::new();
        clock.set_unix_time(JUMP * self.jumps);
        self.options = self.options.clone().clock(Arc::new(clock));
        let keyspaces: Vec<_> = self.history.model().keyspaces().keys().cloned().collect();
        let changes = keyspaces.into_iter().map(|keyspace| Change::Expire { keyspace });
        self.history.add_revocable(changes.collect(), self.disk.operations());
        self.reopen();
    }

    /// Closes the store, and reopens it after the wall clock was set back to the Unix epoch: the
    /// store clock stays ahead.
    ///
    /// # Panics
    ///
    /// As [`jump`](Self::jump).
    pub fn jump_back(&mut self) {
        self.options = self.options.clone().clock(Arc::new(ManualClock::new()));
        self.reopen();
    }

    /// Notes that an edit of the manifest has stored the clock durably: no crash undoes a jump.
    pub fn clock_is_stored(&mut self) {
        if self.failures.is_none() {
            self.history.settle();
        }
    }
}
