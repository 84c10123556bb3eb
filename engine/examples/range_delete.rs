//! An event log with retention: a range delete removes old events at the cost of one write.
//!
//! ```sh
//! cargo run --release -p sievedb --example range_delete
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::{Db, Durability, Result};

const DAYS: u64 = 30;
const EVENTS_PER_DAY: u64 = 1000;
const RETENTION_DAYS: u64 = 7;

/// Events of a source are adjacent and in time order.
fn key(source: &str, day: u64, event: u64) -> Vec<u8> {
    let mut key = day_start(source, day);
    key.extend_from_slice(&event.to_be_bytes());
    key
}

/// The first key of a day.
fn day_start(source: &str, day: u64) -> Vec<u8> {
    [source.as_bytes(), b"/", &day.to_be_bytes()].concat()
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path())?;
    let index = db.keyspace("errors by day")?;
    for source in ["api", "web"] {
        for day in 0..DAYS {
            let mut batch = db.batch();
            for event in 0..EVENTS_PER_DAY {
                batch.insert(&db, key(source, day, event), format!("event {event}"))?;
            }
            batch.insert(&index, day_start(source, day), EVENTS_PER_DAY.to_be_bytes())?;
            batch.commit(Durability::OsBuffer)?;
        }
    }
    let snapshot = db.snapshot();

    // One batch removes the old days from both keyspaces.
    let first_kept = DAYS - RETENTION_DAYS;
    let mut retention = db.batch();
    for source in ["api", "web"] {
        let old = day_start(source, 0)..day_start(source, first_kept);
        retention.remove_range(&db, old.clone())?;
        retention.remove_range(&index, old)?;
    }
    retention.commit(Durability::Disk)?;

    let kept = db.prefix("api/").count() as u64;
    assert_eq!(kept, RETENTION_DAYS * EVENTS_PER_DAY);
    assert!(db.get(key("api", first_kept - 1, 0))?.is_none(), "the day before is removed");
    assert!(db.get(key("api", first_kept, 0))?.is_some(), "the first day in retention is kept");
    assert_eq!(index.prefix("web/").count() as u64, RETENTION_DAYS);

    // The snapshot still sees the old events; without it a compaction frees their space.
    assert_eq!(snapshot.prefix("api/").count() as u64, DAYS * EVENTS_PER_DAY);
    drop(snapshot);
    db.compact()?;
    let entries = db.stats().keyspaces[0].entries;
    assert_eq!(entries, 2 * RETENTION_DAYS * EVENTS_PER_DAY);

    // A source is removed with all its events.
    db.remove_prefix("web/")?;
    assert!(db.prefix("web/").is_empty()?);
    println!("{kept} events of the last {RETENTION_DAYS} days are left");
    Ok(())
}
