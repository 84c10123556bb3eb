//! Writing calls.

use std::ops::Bound;

use bytes::Bytes;
use sievedb::{Db, Durability, Error, Keyspace, KeyspaceOptions};

use super::{DEFAULT_DURABILITY, Opened, Recorder, expiry::TTL};
use crate::{
    model::{Change, Name, shown},
    table_files::{remove_files, write_files},
};

impl Recorder {
    /// Stores a new value of `bytes` bytes.
    pub fn insert(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        self.insert_with(keyspace, key, bytes, DEFAULT_DURABILITY);
    }

    /// As [`insert`](Self::insert), with a durability.
    pub fn insert_with(
        &mut self,
        keyspace: &str,
        key: impl Into<Bytes>,
        bytes: usize,
        durability: Durability,
    ) {
        let value = self.new_value(bytes);
        let change = Change::Put { keyspace: keyspace.into(), key: key.into(), value };
        self.write(vec![change], durability);
    }

    /// Adds a merge operand of `bytes` bytes. The keyspace has the operator `Append`.
    pub fn merge(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        let operand = self.new_value(bytes);
        let change = Change::Merge { keyspace: keyspace.into(), key: key.into(), operand };
        self.write(vec![change], DEFAULT_DURABILITY);
    }

    /// Removes a key.
    pub fn remove(&mut self, keyspace: &str, key: impl Into<Bytes>) {
        self.remove_with(keyspace, key, DEFAULT_DURABILITY);
    }

    /// As [`remove`](Self::remove), with a durability.
    pub fn remove_with(&mut self, keyspace: &str, key: impl Into<Bytes>, durability: Durability) {
        let change = Change::Remove { keyspace: keyspace.into(), key: key.into() };
        self.write(vec![change], durability);
    }

    /// Removes the keys from `start` up to `end`, exclusive, in one write.
    pub fn remove_ranges(&mut self, ranges: &[(&str, &str, &str)], durability: Durability) {
        let changes = ranges.iter().map(|&(keyspace, start, end)| {
            let range =
                (Bound::Included(start.to_owned().into()), Bound::Excluded(end.to_owned().into()));
            Change::RemoveRange { keyspace: keyspace.into(), range }
        });
        self.write(changes.collect(), durability);
    }

    /// Stores new values of `bytes` bytes under keys of any keyspaces in one batch.
    pub fn batch(&mut self, keys: &[(&str, &str)], bytes: usize, durability: Durability) {
        let changes = keys.iter().map(|&(keyspace, key)| {
            let value = self.new_value(bytes);
            Change::Put { keyspace: keyspace.into(), key: key.to_owned().into(), value }
        });
        let changes = changes.collect();
        self.write(changes, durability);
    }

    /// Applies `changes` in one write.
    pub fn write(&mut self, changes: Vec<Change>, durability: Durability) {
        let Some(db) = self.writable() else { return };
        if changes.iter().any(|change| !self.keyspaces.contains_key(change.keyspace())) {
            // The creation of the keyspace failed.
            return;
        }
        let began = self.disk.operations();
        let written = self.carry_out(&db, &changes, durability);
        if changes.iter().all(Change::is_nothing) {
            written.expect("nothing is written");
            return;
        }
        if self.accept("write", written).is_some() {
            self.history.add(changes, began);
            self.history.acknowledge(durability, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    fn carry_out(&self, db: &Db, changes: &[Change], durability: Durability) -> Result<(), Error> {
        let handle = |name: &Name| &self.keyspaces[name].handle;
        match changes {
            [Change::Put { keyspace, key, value }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).insert(key, value);
            }
            [Change::PutExpiring { keyspace, key, value, by_default }]
                if durability == DEFAULT_DURABILITY =>
            {
                return match by_default {
                    true => handle(keyspace).insert(key, value),
                    false => handle(keyspace).insert_with_ttl(key, value, TTL),
                };
            }
            [Change::Remove { keyspace, key }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).remove(key);
            }
            [Change::Merge { keyspace, key, operand }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).merge(key, operand);
            }
            [Change::RemoveRange { keyspace, range }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).remove_range(range.clone());
            }
            [Change::RemovePrefix { keyspace, prefix }] if durability == DEFAULT_DURABILITY => {
                return handle(keyspace).remove_prefix(prefix);
            }
            _ => {}
        }
        let mut batch = db.batch();
        for change in changes {
            match change {
                Change::Put { keyspace, key, value } => {
                    batch.insert(handle(keyspace), key, value)?;
                }
                Change::PutExpiring { keyspace, key, value, by_default: true } => {
                    batch.insert(handle(keyspace), key, value)?;
                }
                Change::PutExpiring { keyspace, key, value, by_default: false } => {
                    batch.insert_with_ttl(handle(keyspace), key, value, TTL)?;
                }
                Change::Remove { keyspace, key } => batch.remove(handle(keyspace), key)?,
                Change::Merge { keyspace, key, operand } => {
                    batch.merge(handle(keyspace), key, operand)?;
                }
                Change::RemoveRange { keyspace, range } => {
                    batch.remove_range(handle(keyspace), range.clone())?;
                }
                Change::RemovePrefix { keyspace, prefix } => {
                    batch.remove_prefix(handle(keyspace), prefix)?;
                }
                other => panic!("{other} is not for a batch"),
            }
        }
        batch.commit(durability).map(drop)
    }

    /// Stores a new value of `bytes` bytes if the key is absent.
    ///
    /// # Panics
    ///
    /// If store and history disagree about that.
    pub fn insert_if_absent(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        let (Some(_), Some(handle)) = (self.writable(), self.handle(keyspace).cloned()) else {
            return;
        };
        let (key, value) = (key.into(), self.new_value(bytes));
        let began = self.disk.operations();
        let inserted = handle.insert_if_absent(&key, &value);
        let entries = self.history.model().entries(keyspace);
        let absent = entries.is_some_and(|entries| !entries.contains_key(&key));
        let shown_key = shown(&key);
        let changes = vec![Change::Put { keyspace: keyspace.into(), key, value }];
        match self.accept("insert if absent", inserted) {
            Some(inserted) => {
                assert_eq!(inserted, absent, "insert if absent into {keyspace} {shown_key}");
                if inserted {
                    self.history.add(changes, began);
                    self.history.acknowledge(DEFAULT_DURABILITY, self.disk.operations());
                }
            }
            None if absent => self.history.add_failed(changes, began),
            None => {}
        }
    }

    /// Creates a keyspace durably, if it does not exist.
    pub fn create(&mut self, name: &str) {
        self.create_with(name, None);
    }

    /// As [`create`](Self::create), with options.
    pub fn create_with(&mut self, name: &str, options: Option<&KeyspaceOptions>) {
        let Some(db) = self.writable() else { return };
        if self.keyspaces.contains_key(name) {
            return;
        }
        let changes = vec![Change::Create { keyspace: name.into() }];
        let began = self.disk.operations();
        let created = match options {
            Some(options) => db.keyspace_with(name, options),
            None => db.keyspace(name),
        };
        if let Some(handle) = self.accept("create keyspace", created) {
            self.incarnations += 1;
            let opened = Opened { handle, incarnation: self.incarnations };
            self.keyspaces.insert(name.into(), opened);
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Drops a keyspace durably, if it exists.
    pub fn drop_keyspace(&mut self, name: &str) {
        let Some(db) = self.writable() else { return };
        if !self.keyspaces.contains_key(name) {
            return;
        }
        let changes = vec![Change::Drop { keyspace: name.into() }];
        let began = self.disk.operations();
        let dropped = db.drop_keyspace(name);
        if let Some(was_there) = self.accept("drop keyspace", dropped) {
            assert!(was_there, "the keyspace {name} should have been there");
            let old = self.keyspaces.remove(name).expect("it was just seen");
            let answer = old.handle.get("any");
            assert!(matches!(answer, Err(Error::KeyspaceDropped { .. })), "{answer:?}");
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Removes all keys of a keyspace durably, if it exists.
    pub fn clear(&mut self, name: &str) {
        let (Some(_), Some(handle)) = (self.writable(), self.handle(name).cloned()) else { return };
        let changes = vec![Change::Clear { keyspace: name.into() }];
        let began = self.disk.operations();
        if self.accept("clear keyspace", handle.clear()).is_some() {
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Ingests `keys`, which ascend, with new values of this length.
    pub fn ingest<K: Into<Bytes>>(
        &mut self,
        keyspace: &str,
        keys: impl IntoIterator<Item = K>,
        bytes: usize,
    ) {
        let entries = self.new_entries(keys, bytes);
        self.ingest_by(keyspace, &entries, |handle| {
            handle.ingest(entries.iter().cloned()).map(drop)
        });
    }

    /// As [`ingest`](Self::ingest) of keys that were written to so many files before.
    pub fn ingest_files<K: Into<Bytes>>(
        &mut self,
        keyspace: &str,
        keys: impl IntoIterator<Item = K>,
        bytes: usize,
        files: usize,
    ) {
        let entries = self.new_entries(keys, bytes);
        let paths = write_files(&self.disk, &entries, files);
        self.ingest_by(keyspace, &entries, |handle| handle.ingest_files(&paths).map(drop));
        remove_files(&self.disk, &paths);
    }

    /// Stores a new value of `bytes` bytes from a reader. Durable if it is long.
    pub fn insert_reader(&mut self, keyspace: &str, key: impl Into<Bytes>, bytes: usize) {
        let entries = self.new_entries([key], bytes);
        self.ingest_by(keyspace, &entries, |handle| {
            let (key, value) = &entries[0];
            handle.insert_reader(key, &value[..], value.len() as u64)
        });
    }

    fn new_entries<K: Into<Bytes>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        bytes: usize,
    ) -> Vec<(Bytes, Bytes)> {
        keys.into_iter().map(|key| (key.into(), self.new_value(bytes))).collect()
    }

    /// Calls `ingest`, which adds `entries`.
    fn ingest_by(
        &mut self,
        keyspace: &str,
        entries: &[(Bytes, Bytes)],
        ingest: impl FnOnce(&Keyspace) -> Result<(), Error>,
    ) {
        let (Some(_), Some(handle)) = (self.writable(), self.handle(keyspace).cloned()) else {
            return;
        };
        let put = |(key, value): &(Bytes, Bytes)| Change::Put {
            keyspace: keyspace.into(),
            key: key.clone(),
            value: value.clone(),
        };
        let changes: Vec<_> = entries.iter().map(put).collect();
        let began = self.disk.operations();
        if self.accept("ingest", ingest(&handle)).is_some() {
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Renames a keyspace durably, if it exists and the new name does not.
    pub fn rename(&mut self, name: &str, to: &str) {
        let Some(db) = self.writable() else { return };
        if !self.keyspaces.contains_key(name) || self.keyspaces.contains_key(to) {
            return;
        }
        let changes = vec![Change::Rename { keyspace: name.into(), to: to.into() }];
        let began = self.disk.operations();
        let renamed = db.rename_keyspace(name, to);
        if self.accept("rename keyspace", renamed).is_some() {
            let opened = self.keyspaces.remove(name).expect("it was just seen");
            assert_eq!(opened.handle.name(), to, "the name of an open handle");
            self.keyspaces.insert(to.into(), opened);
            self.history.add(changes, began);
            self.history.acknowledge(Durability::Disk, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    /// Makes a call with the effect of `changes` on existing keyspaces; without any it writes
    /// nothing. Skipped after a failed call: its effect may depend on that one.
    pub fn call(
        &mut self,
        changes: Vec<Change>,
        durability: Durability,
        call: impl FnOnce(&Db) -> Result<(), Error>,
    ) {
        let Some(db) = self.writable() else { return };
        if !self.failures().is_empty() {
            return;
        }
        let began = self.disk.operations();
        let made = self.accept("call", call(&db)).is_some();
        match (made, changes.is_empty()) {
            (_, true) => {}
            (true, false) => {
                self.history.add(changes, began);
                self.history.acknowledge(durability, self.disk.operations());
            }
            (false, false) => self.history.add_failed(changes, began),
        }
    }

    // Other calls.

    /// Makes all writes so far durable to `durability`.
    pub fn persist(&mut self, durability: Durability) {
        let Some(db) = self.db.clone() else { return };
        if self.accept("persist", db.persist(durability)).is_some() {
            self.history.acknowledge(durability, self.disk.operations());
        }
    }

    /// Flushes all keyspaces.
    pub fn flush(&mut self) {
        let Some(db) = self.db.clone() else { return };
        self.accept("flush", db.flush());
    }

    /// Flushes one keyspace.
    pub fn flush_keyspace(&mut self, name: &str) {
        if let Some(handle) = self.handle(name).cloned() {
            self.accept("flush", handle.flush());
        }
    }

    /// Compacts all keyspaces.
    pub fn compact(&mut self) {
        let Some(db) = self.db.clone() else { return };
        self.accept("compact", db.compact());
    }

    /// Waits for background work.
    pub fn wait_for_background(&mut self) {
        let Some(db) = self.db.clone() else { return };
        self.accept("wait for background work", db.wait_for_background());
    }

    /// Compacts one keyspace, or a range of it.
    pub fn compact_keyspace(&mut self, name: &str, range: Option<(Bytes, Bytes)>) {
        if let Some(handle) = self.handle(name).cloned() {
            let done = match range {
                None => handle.compact(),
                Some((start, end)) => handle.compact_range(start..end),
            };
            self.accept("compact", done);
        }
    }
}
