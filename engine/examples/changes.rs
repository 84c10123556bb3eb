//! A cache that the change stream keeps right.
//!
//! `cargo run -p sievedb --example changes`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use sievedb::{
    Bytes, ChangeRetention, Changes, Db, Durability, Error, Options,
    changes::{ChangeKind, ChangesOptions},
};

/// Values in the form that requests need: here, their lengths.
type Cache = Arc<Mutex<HashMap<Bytes, usize>>>;

/// Applies changes until the store is closed. Returns their number.
fn keep_right(cache: &Cache, changes: &mut Changes, keyspace: u64) -> Result<usize, Error> {
    let mut applied = 0;
    while !changes.is_ended() {
        let Some(batch) = changes.next_within(Duration::from_millis(100)) else { continue };
        // One lock for the batch: readers see all of it or nothing.
        let mut cache = cache.lock().expect("no reader panics");
        for change in batch?.into_iter().filter(|change| change.keyspace == keyspace) {
            applied += 1;
            match change.kind {
                ChangeKind::Insert { key, value, .. } => drop(cache.insert(key, value.len())),
                ChangeKind::Remove { key } => drop(cache.remove(&key)),
                ChangeKind::RemoveRange { start, end } => {
                    let is_in = |key: &Bytes| *key >= start && end.as_ref().is_none_or(|e| key < e);
                    cache.retain(|key, _| !is_in(key));
                }
                ChangeKind::Clear => cache.clear(),
                // This keyspace has no merge operator, and is neither renamed nor dropped.
                _ => {}
            }
        }
    }
    Ok(applied)
}

/// Fills the cache from a snapshot. Returns the sequence number at which it is right.
fn fill(cache: &Cache, db: &Db) -> Result<u64, Error> {
    let snapshot = db.snapshot();
    let mut cache = cache.lock().expect("no reader panics");
    for entry in snapshot.iter() {
        let (key, value) = entry?;
        cache.insert(key, value.len());
    }
    Ok(snapshot.sequence())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let retention = ChangeRetention::bytes(64 << 20).age_max(Duration::from_secs(3600));
    let db = Options::new().retain_changes(retention).open(dir.path())?;
    db.insert("page/1", "written before the cache")?;

    let cache = Cache::default();
    let since = fill(&cache, &db)?;
    // The cache ends with the process, so it may be ahead of the disk.
    let options = ChangesOptions::new().durability(Durability::OsBuffer);
    let mut changes = db.changes_with(since, options)?;
    let keyspace = db.default_keyspace().id().number;
    let reader = thread::spawn({
        let cache = Arc::clone(&cache);
        move || keep_right(&cache, &mut changes, keyspace)
    });

    for page in 0..1000 {
        db.insert(format!("page/{page}"), "x".repeat(page))?;
    }
    db.remove_range("page/2".."page/3")?;
    let wanted: HashMap<_, _> = db
        .iter()
        .map(|entry| entry.map(|(key, value)| (key, value.len())))
        .collect::<Result<_, _>>()?;
    // Others would wait until `Changes::position` reaches their write.
    while *cache.lock().expect("no reader panics") != wanted {
        thread::sleep(Duration::from_millis(1));
    }
    // The stream does not keep the store open, and ends.
    drop(db);
    let applied = reader.join().expect("the reader has not panicked")?;
    println!("{applied} changes led to the {} entries of the store", wanted.len());
    Ok(())
}
