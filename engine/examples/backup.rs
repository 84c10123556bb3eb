//! Nightly backups, and a restore.
//!
//! `cargo run -p sievedb --example backup`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::{BackupSet, Db, Retention};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (live, restored) = (dir.path().join("live"), dir.path().join("restored"));
    let db = Db::open(&live)?;
    for user in 0..20_000_u64 {
        db.insert(user.to_be_bytes(), format!("user {user}"))?;
    }
    db.compact()?;

    let set = BackupSet::new(dir.path().join("backups"));
    for night in 1..=3_u64 {
        db.insert(night.to_be_bytes(), "changed")?;
        // Writes may continue meanwhile. Only new tables and the log are copied.
        let backup = set.create(&db)?;
        println!("night {night}: {} bytes, {} of them new", backup.bytes, backup.bytes_added);
        set.prune(&Retention::new().last(2).daily(7))?;
    }
    let report = set.verify()?;
    assert!(report.problems.is_empty(), "{report}");

    let numbers: Vec<_> = set.list()?.iter().map(|backup| backup.number).collect();
    assert_eq!(numbers, [2, 3]);
    set.restore(2, &restored)?;
    let db = Db::open(&restored)?;
    assert_eq!(db.get(2_u64.to_be_bytes())?.as_deref(), Some(&b"changed"[..]));
    assert_eq!(db.get(3_u64.to_be_bytes())?.as_deref(), Some(&b"user 3"[..]));
    Ok(())
}
