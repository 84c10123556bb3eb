//! A table of users with an index beside it: two keyspaces that a batch changes atomically.
//!
//! `cargo run -p sievedb --example keyspaces`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::sync::{Mutex, PoisonError};

use sievedb::{Db, Durability, FilterPolicy, Keyspace, KeyspaceOptions};

pub(crate) struct Users {
    db: Db,
    pub(crate) by_id: Keyspace,
    pub(crate) by_name: Keyspace,
    /// Held from the read to the commit of a rename. A batch writes atomically, but a read before
    /// it is not part of it.
    renames: Mutex<()>,
}

impl Users {
    /// Opens the two keyspaces. All threads share one `Users`, because it holds the lock.
    pub(crate) fn open(db: Db) -> sievedb::Result<Self> {
        let by_id = db.keyspace("users")?;
        // A keyspace has its own options: many names that are looked up are absent.
        let by_name = db.keyspace_with(
            "users by name",
            &KeyspaceOptions::new().filter_policy(FilterPolicy::default().bits_per_key(16.0)),
        )?;
        Ok(Self { db, by_id, by_name, renames: Mutex::default() })
    }

    /// Renames the user `id`; returns `false` if another user has the name.
    ///
    /// A crash leaves both keyspaces unchanged, or both changed.
    pub(crate) fn rename(&self, id: &str, name: &str) -> sievedb::Result<bool> {
        // The lock protects no data of its own, so a panic of its last holder has broken nothing.
        let _lock = self.renames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = self.by_name.get(name)? {
            return Ok(owner == id.as_bytes());
        }
        let mut batch = self.db.batch();
        if let Some(old_name) = self.by_id.get(id)? {
            batch.remove(&self.by_name, old_name)?;
        }
        batch.insert(&self.by_id, id, name)?;
        batch.insert(&self.by_name, name, id)?;
        batch.commit(Durability::Disk)?;
        Ok(true)
    }
}

#[cfg_attr(test, expect(dead_code, reason = "a test includes this file for `Users`"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let users = Users::open(Db::open(dir.path())?)?;
    users.rename("7", "anna")?;
    users.rename("8", "bert")?;
    users.rename("7", "anne")?;

    assert!(!users.rename("8", "anne")?, "the name is taken");
    assert!(!users.by_name.contains_key("anna")?);
    assert_eq!(users.by_name.get("anne")?.as_deref(), Some(&b"7"[..]));
    for keyspace in users.db.stats().keyspaces {
        println!("{}: {} bytes in memory", keyspace.name, keyspace.memtable_bytes);
    }
    Ok(())
}
