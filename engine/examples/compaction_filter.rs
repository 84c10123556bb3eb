//! Event log with retention: compactions remove events that are too old.
//!
//! Keys begin with the time, so one decision removes all events before the limit. Unlike
//! [expiry](sievedb::Keyspace::insert_with_ttl), retention can be changed at any time, for events
//! that are stored already.
//!
//! `cargo run -p sievedb --example compaction_filter`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use sievedb::{
    CompactionContext, CompactionFilter, Db, Decision, Keyspace, KeyspaceOptions, Options,
};

/// Keeps events from a time on, in seconds. Removes the text of debug events before that.
#[derive(Debug, Default)]
struct Retention {
    oldest: AtomicU64,
    kept: AtomicU64,
}

impl CompactionFilter for Retention {
    fn name(&self) -> &str {
        "retention"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], value: &[u8]) -> Decision {
        let oldest = self.oldest.load(Relaxed).to_be_bytes();
        if key < &oldest[..] {
            return Decision::RemoveAndSkipUntil(oldest.to_vec());
        }
        self.kept.fetch_add(1, Relaxed);
        match value.strip_prefix(b"debug: ") {
            Some(text) if text.len() > 8 => Decision::Replace(b"debug: cut".to_vec()),
            _ => Decision::Keep,
        }
    }
}

/// Events by time and number.
struct Events {
    keyspace: Keyspace,
    count: u64,
}

impl Events {
    fn open(db: &Db, retention: &Arc<Retention>) -> sievedb::Result<Self> {
        let filter = Arc::clone(retention) as Arc<dyn CompactionFilter>;
        let options = KeyspaceOptions::new().compaction_filter(filter);
        let keyspace = db.keyspace_with("events", &options)?;
        let count = keyspace.len()?;
        Ok(Self { keyspace, count })
    }

    fn add(&mut self, time: u64, text: &str) -> sievedb::Result<()> {
        self.count += 1;
        let key = [time.to_be_bytes(), self.count.to_be_bytes()].concat();
        self.keyspace.insert(key, text)
    }

    fn oldest(&self) -> sievedb::Result<Option<u64>> {
        let Some((key, _)) = self.keyspace.first()? else { return Ok(None) };
        Ok(key.first_chunk().map(|time| u64::from_be_bytes(*time)))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let retention = Arc::<Retention>::default();
    let db = Db::open(dir.path())?;
    let mut events = Events::open(&db, &retention)?;
    for time in 0..10_000 {
        let text = if time % 10 == 0 { "debug: a long text" } else { "an event" };
        events.add(time, text)?;
    }

    // A snapshot keeps what it sees.
    let snapshot = db.snapshot();
    retention.oldest.store(9_000, Relaxed);
    db.compact()?;
    assert_eq!(events.keyspace.len()?, 10_000);
    drop(snapshot);
    // Compactions also run by themselves. This one rewrites everything.
    db.compact()?;
    assert_eq!((events.keyspace.len()?, events.oldest()?), (1_000, Some(9_000)));
    assert_eq!(retention.kept.load(Relaxed), 1_000, "older events are not even read");
    let key = events.keyspace.first()?.map(|(key, _)| key).unwrap_or_default();
    assert_eq!(events.keyspace.get(key)?.as_deref(), Some(&b"debug: cut"[..]));
    drop((events, db));

    // The filter is code of this process: pass it at each open.
    retention.oldest.store(9_990, Relaxed);
    let filter = Arc::clone(&retention) as Arc<dyn CompactionFilter>;
    let db = Options::new().compaction_filter(filter).open(dir.path())?;
    let events = db.open_keyspace("events")?;
    events.compact()?;
    println!("{} of 10000 events are left", events.len()?);
    assert_eq!(events.len()?, 10);
    Ok(())
}
