//! One call of each of the walks whose files `.ci/promises house` counts: a lookup of an absent
//! key, a lookup that is served from the block cache, an insert, and a flush of one entry.
//!
//! `cargo run -p sievedb-benches --example walks -- absent` makes one of them, without an argument
//! all are made. The store has no workers, so a flush is work of the calling thread.

use std::{env, error::Error, hint::black_box};

use sievedb::{Db, Options};

const ENTRIES: u32 = 10_000;

/// Returns the key of an entry. Keys with odd numbers are absent.
fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[inline(never)]
fn walk_absent(db: &Db) -> sievedb::Result<()> {
    assert_eq!(black_box(db.get(key(4_001)))?, None);
    Ok(())
}

#[inline(never)]
fn walk_hit(db: &Db) -> sievedb::Result<()> {
    assert!(black_box(db.get(key(4_000)))?.is_some());
    Ok(())
}

#[inline(never)]
fn walk_insert(db: &Db) -> sievedb::Result<()> {
    db.insert(key(1), "value")
}

#[inline(never)]
fn walk_flush(db: &Db) -> sievedb::Result<()> {
    db.flush()
}

fn main() -> Result<(), Box<dyn Error>> {
    let walk = env::args().nth(1);
    let is_chosen = |name: &str| walk.as_deref().is_none_or(|walk| walk == name);
    let directory = tempfile::tempdir()?;
    let db = Options::new().worker_threads(0).open(directory.path().join("store"))?;
    for number in (0..ENTRIES).step_by(2) {
        db.insert(key(number), [7; 100])?;
    }
    db.flush()?;
    // Caches the block of the hit, and runs lazy initialization.
    db.get(key(4_000))?;
    db.get(key(4_003))?;
    if is_chosen("absent") {
        walk_absent(&db)?;
    }
    if is_chosen("hit") {
        walk_hit(&db)?;
    }
    db.insert(key(3), "value")?;
    if is_chosen("insert") {
        walk_insert(&db)?;
    }
    db.flush()?;
    db.insert(key(5), "value")?;
    if is_chosen("flush") {
        walk_flush(&db)?;
    }
    Ok(())
}
