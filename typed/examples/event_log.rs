//! An event log: keys are tuples of stream, time and number, so a range is a time window of one
//! stream. A later release adds a field to the events, and migrates the stored ones.
//!
//! `cargo run -p sievedb-typed --example event_log`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sievedb_typed::{
    Error, Result, Schema, TypedKeyspace,
    sievedb::{Db, Durability},
};

/// Stream, time, and a number that distinguishes events of one time.
type EventKey = (String, SystemTime, u32);

/// An event as the first release stored it.
#[derive(Serialize, Deserialize)]
struct EventV1 {
    text: String,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Event {
    text: String,
    severity: u8,
}

/// Returns the time `minutes` after the start of the log.
fn at(minutes: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000 + 60 * minutes)
}

/// Writes the log with the types of the first release.
fn first_release(db: &Db) -> Result<()> {
    let log = TypedKeyspace::<EventKey, EventV1>::open(db, "events", Schema::new("event", 1))?;
    let mut batch = db.batch();
    for minute in 0..60 {
        let text = if minute % 20 == 7 { "error: disk full" } else { "ok" };
        let key = ("db/1", at(minute), 0);
        log.insert_in(&mut batch, key, EventV1 { text: text.to_owned() })?;
        log.insert_in(&mut batch, ("db/10", at(minute), 0), EventV1 { text: "ok".to_owned() })?;
    }
    batch.commit(Durability::Disk)?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    first_release(&db)?;

    // Without a migration, the open fails, so old events are not misread.
    let schema = Schema::new("event", 2);
    let refused = TypedKeyspace::<EventKey, Event>::open(&db, "events", schema);
    assert!(matches!(refused, Err(Error::SchemaMismatch { .. })));

    let schema = Schema::new("event", 2).migrate(1, |old: EventV1| {
        let severity = if old.text.starts_with("error") { 2 } else { 0 };
        Event { text: old.text, severity }
    });
    let log = TypedKeyspace::<EventKey, Event>::open(&db, "events", schema)?;

    // A window of one stream: the stream "db/10" is not part of "db/1".
    let window = log.prefix_range(("db/1", at(10))..("db/1", at(40)));
    let mut errors = Vec::new();
    for entry in window {
        let ((_, time, _), event) = entry?;
        if event.severity > 1 {
            errors.push(time);
            println!("{} s: {}", time.duration_since(at(0))?.as_secs(), event.text);
        }
    }
    assert_eq!(errors, [at(27)]);

    // The newest events of a stream.
    let newest = log.prefix(("db/10",)).rev().take(2).collect::<Result<Vec<_>>>()?;
    assert_eq!(newest[0].0, ("db/10".to_owned(), at(59), 0));
    assert_eq!(newest[1].0, ("db/10".to_owned(), at(58), 0));

    // Events of one time are numbered.
    let number = log.prefix(("db/1", at(59))).keys().next_back().transpose()?;
    let number = number.map_or(0, |(_, _, number)| number + 1);
    let event = Event { text: "again".to_owned(), severity: 1 };
    assert!(log.insert_if_absent(("db/1", at(59), number), &event)?);
    assert_eq!(log.get(("db/1", at(59), 1))?, Some(event));

    // The oldest events are removed.
    let old: Vec<_> = log.prefix_range(..("db/1", at(30))).keys().collect::<Result<_>>()?;
    let mut batch = db.batch();
    for key in &old {
        log.remove_in(&mut batch, key)?;
    }
    batch.commit(Durability::Disk)?;
    assert_eq!(log.prefix(("db/1",)).count(), 31);
    println!("{} events", log.keys().count());
    Ok(())
}
