//! A checkpoint before a risky change, and a return to it.
//!
//! `cargo run -p sievedb --example checkpoint`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (live, before) = (dir.path().join("live"), dir.path().join("before-import"));
    let db = Db::open(&live)?;
    for user in 0..10_000_u64 {
        db.insert(user.to_be_bytes(), format!("user {user}"))?;
    }
    db.flush()?;

    // Writes may continue meanwhile. Tables are shared until the store replaces its own.
    let checkpoint = db.checkpoint(&before)?;
    println!(
        "{} files linked, {} bytes copied, up to sequence number {}",
        checkpoint.files_linked, checkpoint.bytes_copied, checkpoint.sequence
    );

    // The import goes wrong.
    db.clear()?;
    assert!(db.is_empty()?);
    drop(db);

    // The checkpoint is a store of its own: open it in place of the other, or move its directory.
    let db = Db::open(&before)?;
    assert_eq!(db.len()?, 10_000);
    db.insert("restored", "")?;
    Ok(())
}
