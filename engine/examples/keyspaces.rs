//! A table of users with an index beside it: two keyspaces that a batch changes as one.
//!
//! `cargo run -p sievedb --example keyspaces`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::{Db, Durability, FilterPolicy, Keyspace, KeyspaceOptions};

struct Users {
    db: Db,
    by_id: Keyspace,
    by_name: Keyspace,
}

impl Users {
    fn open(db: Db) -> sievedb::Result<Self> {
        let by_id = db.keyspace("users")?;
        // A keyspace has options of its own: names are asked for often and in vain.
        let by_name = db.keyspace_with(
            "users by name",
            &KeyspaceOptions::new().filter_policy(FilterPolicy::default().bits_per_key(16.0)),
        )?;
        Ok(Self { db, by_id, by_name })
    }

    /// Names the user `id`. A crash leaves both keyspaces as they were, or both changed.
    fn rename(&self, id: &str, name: &str) -> sievedb::Result<()> {
        let mut batch = self.db.batch();
        if let Some(old_name) = self.by_id.get(id)? {
            batch.remove(&self.by_name, old_name)?;
        }
        batch.insert(&self.by_id, id, name)?;
        batch.insert(&self.by_name, name, id)?;
        batch.commit(Durability::Disk)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let users = Users::open(Db::open(folder.path())?)?;
    users.rename("7", "anna")?;
    users.rename("8", "bert")?;
    users.rename("7", "anne")?;

    assert!(!users.by_name.contains_key("anna")?);
    assert_eq!(users.by_name.get("anne")?.as_deref(), Some(&b"7"[..]));
    for keyspace in users.db.stats().keyspaces {
        println!("{}: {} bytes in memory", keyspace.name, keyspace.memtable_bytes);
    }
    Ok(())
}
