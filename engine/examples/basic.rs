//! Stores, reads, scans and removes keys; what was written is there again after reopening.
//!
//! `cargo run -p sievedb --example basic`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::Db;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    for (name, legs) in [("ant", "6"), ("bee", "6"), ("cow", "4"), ("crab", "10")] {
        db.insert(name, legs)?;
    }
    assert_eq!(db.get("cow")?.as_deref(), Some(&b"4"[..]));

    // A key that is not there: answered from memory, without reading a file.
    assert_eq!(db.get("dodo")?, None);
    assert!(!db.may_contain("dodo"));

    // One of two callers gets a name.
    assert!(db.insert_if_absent("dog", "4")?);
    assert!(!db.insert_if_absent("dog", "5")?);

    db.remove("crab")?;
    for entry in db.range("b"..).rev() {
        let (name, legs) = entry?;
        println!("{} has {} legs", name.escape_ascii(), legs.escape_ascii());
    }

    // From here on not even a power cut loses it. A drop would do the same, and could not tell of
    // an error.
    db.close()?;
    let db = Db::open(dir.path())?;
    assert_eq!(db.prefix("c").keys().collect::<Result<Vec<_>, _>>()?, ["cow"]);
    Ok(())
}
