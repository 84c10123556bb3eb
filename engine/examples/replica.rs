//! A read replica of a backup set: it answers before its tables have arrived, and moves on.
//!
//! `cargo run -p sievedb --example replica`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::time::Duration;

use sievedb::{BackupSet, Db, Options, RestoreOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("live"))?;
    for user in 0..20_000_u64 {
        db.insert(user.to_be_bytes(), format!("user {user}"))?;
    }
    db.compact()?;
    // With the feature `object-store`: `BackupSet::in_object_store`.
    let set = BackupSet::new(dir.path().join("backups"));
    set.create(&db)?;

    let select = RestoreOptions::new().fetch_threads(2);
    let replica = set.open_replica(&select, &Options::new(), dir.path().join("replica"))?;
    // The filters are in memory.
    assert_eq!(replica.db().get("absent")?, None);
    let stats = replica.stats();
    println!("opened: {} bytes read, {} to fetch", stats.range_bytes, stats.bytes_pending);
    assert!(replica.wait(Duration::from_secs(60))?, "{:?}", replica.stats());

    // A later backup, every few minutes or so.
    let before = replica.db().snapshot();
    db.insert(7_u64.to_be_bytes(), "changed")?;
    set.create(&db)?;
    assert!(replica.refresh()?);
    assert_eq!(replica.db().get(7_u64.to_be_bytes())?.as_deref(), Some(&b"changed"[..]));
    assert_eq!(before.get(7_u64.to_be_bytes())?.as_deref(), Some(&b"user 7"[..]));
    assert!(!replica.refresh()?, "there is no newer backup");
    assert!(replica.wait(Duration::from_secs(60))?, "{:?}", replica.stats());
    println!("refreshed: {} files fetched", replica.stats().files_fetched);
    Ok(())
}
