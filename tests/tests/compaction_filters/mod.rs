//! Compaction filters: values that compactions remove or replace.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod failing;
mod snapshots;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use sievedb::{
    Append, CompactionContext, CompactionFilter, Db, Decision, KeyspaceOptions, Options, Snapshot,
    TimeToLive, fs::Fs,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_keyspace, small_options},
};

/// Removes values that begin with `drop`, and replaces those that begin with `swap`.
#[derive(Debug, Default)]
struct ByValue {
    calls: AtomicU64,
}

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "by value"
    }

    fn filter(&self, context: &CompactionContext<'_>, _: &[u8], value: &[u8]) -> Decision {
        assert!(context.keyspace == "default" && context.output_level < 7, "{context:?}");
        self.calls.fetch_add(1, SeqCst);
        match value.get(..4) {
            Some(b"drop") => Decision::Remove,
            Some(b"swap") => Decision::Replace([b"kept", &value[4..]].concat()),
            _ => Decision::Keep,
        }
    }
}

/// Returns what is left of a value once it was filtered.
fn image(value: &Bytes) -> Option<Bytes> {
    match ByValue::default().filter(&CompactionContext::new("default", 6, true), b"", value) {
        Decision::Keep => Some(value.clone()),
        Decision::Replace(new) => Some(new.into()),
        _ => None,
    }
}

fn filtering() -> KeyspaceOptions {
    small_keyspace().compaction_filter(Arc::<ByValue>::default())
}

fn options(fs: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(fs) as Arc<dyn Fs>)
}

fn all(view: impl Iterator<Item = sievedb::Result<(Bytes, Bytes)>>) -> BTreeMap<Bytes, Bytes> {
    view.collect::<sievedb::Result<_>>().unwrap()
}

fn of_snapshot(snapshot: &Snapshot) -> BTreeMap<Bytes, Bytes> {
    let found = all(snapshot.iter());
    assert_eq!(all(snapshot.iter().rev()), found);
    for (key, value) in &found {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
    }
    found
}

/// Checks that each key has its value in `model`, or what the filter leaves of it.
fn check(db: &Db, model: &BTreeMap<Bytes, Bytes>) {
    let found = all(db.iter());
    assert_eq!(all(db.iter().rev()), found);
    assert!(found.keys().all(|key| model.contains_key(key)), "a removed key is back");
    for (key, value) in model {
        let got = db.get(key).unwrap();
        assert_eq!(got.as_ref(), found.get(key));
        assert!(got.as_ref() == Some(value) || got == image(value), "{key:?}: {got:?}, {value:?}");
    }
}

#[test]
fn a_store_with_a_filter_equals_its_model() {
    let mut rng = Rng::new(seed("a_store_with_a_filter_equals_its_model", 31));
    let fs = Arc::new(MemoryFs::new());
    let keyspace = || filtering().merge_operator(Arc::new(Append::new()));
    let open = || options(&fs).keyspace(keyspace()).open(STORE_DIR).unwrap();
    let (mut db, mut model) = (open(), BTreeMap::<Bytes, Bytes>::new());
    let mut held: Vec<(Snapshot, BTreeMap<Bytes, Bytes>)> = Vec::new();
    let mut filtered = 0;
    for step in 0..3000 {
        let key = Bytes::from(format!("key{:02}", rng.below(40)));
        match rng.below(100) {
            0..50 => {
                let start = rng.pick(&["drop", "swap", "stay", "kept"]);
                let value = Bytes::from(format!("{start} {step} {}", "-".repeat(rng.below(60))));
                db.insert(&key, &value).unwrap();
                model.insert(key, value);
            }
            50..65 => {
                // The base may be filtered before or after the operand is applied, so it must stay.
                let value = Bytes::from(format!("stay {step}"));
                db.insert(&key, &value).unwrap();
                db.merge(&key, "+").unwrap();
                model.insert(key, [&value[..], b"+"].concat().into());
            }
            65..75 => {
                db.remove(&key).unwrap();
                model.remove(&key);
            }
            75..78 => {
                let end = Bytes::from(format!("key{:02}", rng.below(40)));
                db.remove_range(key.clone()..end.clone()).unwrap();
                model.retain(|other, _| *other < key || *other >= end);
            }
            78..83 => db.flush().unwrap(),
            83..86 => {
                db.compact().unwrap();
                if held.is_empty() {
                    filtered += model
                        .values()
                        .filter(|value| image(value).as_ref() != Some(*value))
                        .count();
                    model =
                        model.iter().filter_map(|(k, v)| Some((k.clone(), image(v)?))).collect();
                    assert_eq!(all(db.iter()), model, "every value was filtered");
                }
            }
            86..91 => {
                let snapshot = db.snapshot();
                let found = of_snapshot(&snapshot);
                held.push((snapshot, found));
            }
            91..97 if !held.is_empty() => {
                held.swap_remove(rng.below(held.len()));
            }
            97 => {
                held.clear();
                drop(db);
                db = open();
            }
            _ => {}
        }
        if step % 20 == 0 {
            check(&db, &model);
            for (snapshot, found) in &held {
                assert_eq!(of_snapshot(snapshot), *found, "a snapshot has changed");
            }
        }
    }
    held.clear();
    db.compact().unwrap();
    let left: BTreeMap<_, _> =
        model.iter().filter_map(|(k, v)| Some((k.clone(), image(v)?))).collect();
    assert_eq!(all(db.iter()), left);
    assert!(filtered > 20, "compactions removed or replaced {filtered} values");
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn a_store_opens_without_its_filter_and_keeps_all_values() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs).open(STORE_DIR).unwrap();
    let name = "filtered";
    let other = small_keyspace().compaction_filter(Arc::new(Cut::default()));
    let keyspace = db.keyspace_with(name, &other).unwrap();
    for number in 0..100 {
        keyspace.insert(format!("{number:03}"), "value").unwrap();
    }
    drop((keyspace, db));

    let db = options(&fs).open(STORE_DIR).unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    keyspace.compact().unwrap();
    assert_eq!(keyspace.len().unwrap(), 100, "the filter is missing");
    assert_eq!(keyspace.options().get_compaction_filter_name(), Some("cut"));
    // An unrelated change keeps the name.
    keyspace.set_options(keyspace.options().block_bytes(2 << 10)).unwrap();
    drop((keyspace, db));

    let db = options(&fs).compaction_filter(Arc::new(Cut::default())).open(STORE_DIR).unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    let snapshot = db.snapshot();
    keyspace.compact().unwrap();
    assert_eq!(keyspace.len().unwrap(), 100, "the snapshot sees them");
    drop(snapshot);
    keyspace.compact().unwrap();
    assert_eq!(keyspace.len().unwrap(), 50, "a compact keyspace is rewritten");
    keyspace.insert("000", "").unwrap();
    keyspace.set_options(keyspace.options().without_compaction_filter()).unwrap();
    keyspace.compact().unwrap();
    assert_eq!(keyspace.len().unwrap(), 51, "there is no filter");
    assert!(db.verify().unwrap().is_good());
}

/// Removes all keys before `050` by one decision.
#[derive(Debug, Default)]
struct Cut {
    calls: AtomicU64,
}

impl CompactionFilter for Cut {
    fn name(&self) -> &str {
        "cut"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], _: &[u8]) -> Decision {
        self.calls.fetch_add(1, SeqCst);
        match key < &b"050"[..] {
            true => Decision::RemoveAndSkipUntil(b"050".to_vec()),
            false => Decision::Keep,
        }
    }
}

#[test]
fn a_skip_removes_keys_over_all_tables_of_a_compaction() {
    let fs = Arc::new(MemoryFs::new());
    let cut = Arc::<Cut>::default();
    // Without a log limit nothing is flushed or compacted by itself.
    let large = KeyspaceOptions::new().table_bytes(4 << 10).block_bytes(1 << 10);
    let large = large.compaction_filter(Arc::clone(&cut) as Arc<dyn CompactionFilter>);
    let plain = Options::new().fs(Arc::clone(&fs) as Arc<dyn Fs>).worker_threads(0);
    let db = plain.keyspace(large).open(STORE_DIR).unwrap();
    for round in 0..2 {
        for number in 0..100 {
            db.insert(format!("{number:03}"), [round; 500]).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(cut.calls.load(SeqCst), 0, "flushes do not filter");
    db.compact().unwrap();
    assert_eq!(cut.calls.load(SeqCst), 51, "one call for all keys before 050");
    let keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
    assert_eq!((keys.len(), &*keys[0]), (50, &b"050"[..]));
    let entries: u64 = db.stats().levels.iter().map(|level| level.entries).sum();
    assert_eq!(entries, 50, "no tombstone is left");
    assert!(db.verify().unwrap().is_good());
}

#[test]
fn a_replaced_value_keeps_its_expiry() {
    let fs = Arc::new(MemoryFs::new());
    let db = options(&fs).keyspace(filtering()).open(STORE_DIR).unwrap();
    let ttl = Duration::from_secs(60);
    db.insert_with_ttl("a", "swap it", ttl).unwrap();
    db.insert_with_ttl("b", "drop it", ttl).unwrap();
    db.compact().unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"kept it"[..]));
    assert_eq!(db.ttl("a").unwrap(), Some(TimeToLive::Remaining(ttl)));
    assert_eq!(db.get("b").unwrap(), None);
}

/// Notes the memory that compactions take during its first call.
#[derive(Debug, Default)]
struct Watching {
    db: Mutex<Option<Db>>,
    writing_bytes: AtomicU64,
}

impl CompactionFilter for Watching {
    fn name(&self) -> &str {
        "watching"
    }

    fn filter(&self, _: &CompactionContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        if let Some(db) = self.db.lock().unwrap().take() {
            self.writing_bytes.store(db.stats().memory.writing_bytes, SeqCst);
        }
        Decision::Keep
    }
}

#[test]
fn a_value_from_a_blob_file_is_charged_while_it_is_shown() {
    const BYTES: usize = 3 << 20;
    let fs = Arc::new(MemoryFs::new());
    let watching = Arc::<Watching>::default();
    let keyspace = KeyspaceOptions::new().blob_value_bytes(1_000);
    let keyspace = keyspace.compaction_filter(Arc::clone(&watching) as Arc<dyn CompactionFilter>);
    let plain = Options::new().fs(Arc::clone(&fs) as Arc<dyn Fs>).worker_threads(0);
    let db = plain.keyspace(keyspace).open(STORE_DIR).unwrap();
    db.insert("key", vec![7; BYTES]).unwrap();
    *watching.db.lock().unwrap() = Some(db.clone());
    db.compact().unwrap();
    let bytes = watching.writing_bytes.load(SeqCst);
    assert!((BYTES..2 * BYTES).contains(&(bytes as usize)), "{bytes} bytes");
    assert_eq!(db.stats().memory.writing_bytes, 0);
}
