//! Single cases: where a history begins, and what ends it.

use std::sync::Arc;

use sievedb::{
    Bytes, CompactionContext, CompactionFilter, Db, Decision, Error, HistoryLength, KeyHistory,
    Keyspace, OlderValues, Options,
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use super::{assert_refused, counters, open};

/// Returns the values of the versions of `key`, the newest first, each with its sequence number.
fn versions(history: KeyHistory) -> Vec<(Option<u64>, Option<Bytes>)> {
    history.map(|version| version.unwrap()).map(|it| (it.sequence, it.value)).collect()
}

fn now(db: &Db) -> u64 {
    db.snapshot().sequence()
}

/// Overwrites a key until everything is in the last level, once for each of `values`.
fn write_each(db: &Db, keyspace: &Keyspace, values: &[&str]) -> Vec<u64> {
    let write = |value: &&str| {
        keyspace.insert("key", value).unwrap();
        db.compact().unwrap();
        now(db)
    };
    values.iter().map(write).collect()
}

#[test]
fn every_version_within_the_history_is_read_and_older_ones_are_dropped() {
    let db = open(3);
    let default = db.default_keyspace();
    let at = write_each(&db, default, &["a", "b", "c", "d", "e", "f"]);
    let values: Vec<_> = ["f", "e", "d", "c"].map(|value| Some(Bytes::from(value))).into();
    let found = versions(db.history("key").unwrap());
    let sequences = [Some(at[5]), Some(at[4]), Some(at[3]), None];
    assert_eq!(found, sequences.into_iter().zip(values).collect::<Vec<_>>());
    for (sequence, value) in at[2..].iter().zip(["c", "d", "e", "f"]) {
        let past = db.snapshot_at(*sequence).unwrap();
        assert_eq!((past.get("key").unwrap(), past.sequence()), (Some(value.into()), *sequence));
    }
    assert_refused(db.snapshot_at(at[1]), Some(at[2]));
    assert_refused(db.snapshot_at(at[5] + 1), Some(at[2]));
    assert_eq!(default.approximate_len().unwrap(), 4, "older versions are gone");
}

#[test]
fn a_snapshot_of_the_past_keeps_what_it_sees() {
    let db = open(3);
    let at = write_each(&db, db.default_keyspace(), &["a", "b", "c"]);
    let past = db.snapshot_at(at[0]).unwrap();
    write_each(&db, db.default_keyspace(), &["d", "e", "f", "g"]);
    assert_refused(db.snapshot_at(at[0]), Some(at[2] + 1));
    assert_eq!(past.get("key").unwrap(), Some("a".into()));
    assert_eq!(past.iter().count(), 1);
    drop(past);
    db.compact().unwrap();
    assert_eq!(versions(db.history("key").unwrap()).len(), 4);
}

#[test]
fn a_keyspace_without_a_history_refuses() {
    let db = small_options(Arc::new(MemoryFs::with_seed(1))).open(STORE_DIR).unwrap();
    db.insert("key", "a").unwrap();
    assert_refused(db.snapshot_at(now(&db)), None);
    assert_refused(db.history("key"), None);
    let prices = db.keyspace_with("prices", &counters(10)).unwrap();
    prices.insert("key", "b").unwrap();
    let at = now(&db);
    prices.insert("key", "c").unwrap();
    assert_eq!(prices.snapshot_at(at).unwrap().get("key").unwrap(), Some("b".into()));
    let error = db.snapshot_at(at).err().unwrap();
    let want = "the keyspace \"default\" has no history, so it cannot be read at sequence number 4; \
                set KeyspaceOptions::keep_history";
    assert_eq!(error.to_string(), want);
}

/// One snapshot covers the keyspaces whose histories reach back far enough, and no others.
#[test]
fn a_snapshot_of_the_past_refuses_keyspaces_with_a_shorter_history() {
    let db = open(100);
    let short = db.keyspace_with("short", &counters(2)).unwrap();
    let long = db.keyspace_with("long", &counters(50)).unwrap();
    let none = small_keyspace();
    let none = db.keyspace_with("none", &none).unwrap();
    long.insert("key", "a").unwrap();
    short.insert("key", "a").unwrap();
    let at = now(&db);
    for _ in 0..5 {
        long.insert("key", "b").unwrap();
    }
    let past = db.snapshot_at(at).unwrap();
    assert_eq!(past.keyspace(&long).unwrap().get("key").unwrap(), Some("a".into()));
    assert_refused(past.keyspace(&short), Some(now(&db) - 2));
    assert_refused(past.keyspace(&none), None);
}

#[test]
fn a_clear_ends_the_history_and_removals_do_not() {
    let db = open(100);
    db.insert("key", "a").unwrap();
    db.insert("key", "b").unwrap();
    let before = now(&db);
    db.remove("key").unwrap();
    db.remove_range("a".."z").unwrap();
    db.compact().unwrap();
    let found: Vec<_> = versions(db.history("key").unwrap());
    let values: Vec<_> = found.iter().map(|(_, value)| value.as_deref()).collect();
    assert_eq!(values, [None, None, Some(&b"b"[..]), Some(b"a")]);
    assert_eq!(db.snapshot_at(before).unwrap().get("key").unwrap(), Some("b".into()));
    db.default_keyspace().clear().unwrap();
    let cleared = now(&db);
    assert_refused(db.snapshot_at(before), Some(cleared));
    assert_eq!(versions(db.history("key").unwrap()), []);
    db.insert("key", "c").unwrap();
    assert_eq!(db.snapshot_at(cleared).unwrap().get("key").unwrap(), None);
    assert_eq!(versions(db.history("key").unwrap()).len(), 1);
}

/// Versions dropped before a history began, or by a shorter one, are never shown, also after a
/// reopen.
#[test]
fn a_history_begins_when_it_is_set_and_a_longer_one_brings_nothing_back() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let open = || {
        let db = small_options(Arc::clone(&fs) as _).open(STORE_DIR).unwrap();
        let prices = db.keyspace("prices").unwrap();
        (db, prices)
    };
    let (db, prices) = open();
    let mut at = write_each(&db, &prices, &["a", "b"]);
    let set = |prices: &Keyspace, length: Option<u64>| {
        let length = length.map(HistoryLength::Sequences);
        prices.set_options(prices.options().keep_history(length)).unwrap();
    };
    set(&prices, Some(3));
    at.extend(write_each(&db, &prices, &["c"]));
    assert_refused(prices.snapshot_at(at[0]), Some(at[1]));
    at.extend(write_each(&db, &prices, &["d", "e", "f"]));
    assert_refused(prices.snapshot_at(at[1]), Some(at[2]));
    set(&prices, Some(1000));
    at.extend(write_each(&db, &prices, &["g"]));
    drop((db, prices));
    let (db, prices) = open();
    assert_refused(prices.snapshot_at(at[1]), Some(at[2]));
    for (sequence, value) in at[2..].iter().zip(["c", "d", "e", "f", "g"]) {
        let past = prices.snapshot_at(*sequence).unwrap();
        assert_eq!(past.get("key").unwrap(), Some(value.into()));
    }
    set(&prices, None);
    assert_refused(prices.snapshot_at(at[6]), None);
    prices.compact().unwrap();
    set(&prices, Some(9));
    assert_refused(prices.snapshot_at(at[5]), Some(at[6]));
    assert_eq!(prices.snapshot_at(now(&db)).unwrap().get("key").unwrap(), Some("g".into()));
}

/// The options of an opening replace those of the default keyspace.
#[test]
fn a_history_begins_with_the_opening_that_sets_it() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let open = |length: Option<u64>| {
        let length = length.map(HistoryLength::Sequences);
        let options = small_options(Arc::clone(&fs) as _);
        options.keyspace(small_keyspace().keep_history(length)).open(STORE_DIR).unwrap()
    };
    let db = open(None);
    let mut at = write_each(&db, db.default_keyspace(), &["a", "b"]);
    db.insert("key", "c").unwrap();
    at.push(now(&db));
    drop(db);
    for _ in 0..2 {
        let db = open(Some(100));
        assert_refused(db.snapshot_at(at[1]), Some(at[2]));
        assert_eq!(db.snapshot_at(at[2]).unwrap().get("key").unwrap(), Some("c".into()));
        db.insert("key", "d").unwrap();
        db.compact().unwrap();
    }
    let db = open(None);
    assert_refused(db.snapshot_at(at[2]), None);
}

#[test]
fn a_history_begun_in_the_log_alone_survives() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let open = |fs: &Arc<MemoryFs>| small_options(Arc::clone(fs) as _).open(STORE_DIR).unwrap();
    let db = open(&fs);
    let prices = db.keyspace_with("prices", &counters(100)).unwrap();
    prices.insert("key", "a").unwrap();
    let at = now(&db);
    prices.insert("key", "b").unwrap();
    let killed = Arc::new(fs.copy());
    let db = open(&killed);
    let prices = db.open_keyspace("prices").unwrap();
    prices.insert("key", "c").unwrap();
    db.compact().unwrap();
    assert_eq!(prices.snapshot_at(at).unwrap().get("key").unwrap(), Some("a".into()));
    assert_eq!(versions(prices.history("key").unwrap()).len(), 3);
}

#[test]
fn merge_operands_show_each_result() {
    let db = open(100);
    let counts = db.keyspace_with("counts", &counters(100)).unwrap();
    let add = |by: u64| counts.merge("key", by.to_be_bytes()).unwrap();
    for by in 1..=4 {
        add(by);
        db.flush().unwrap();
    }
    db.compact().unwrap();
    let found = versions(counts.history("key").unwrap());
    let values: Vec<_> = found
        .into_iter()
        .map(|(_, value)| u64::from_be_bytes(value.unwrap()[..].try_into().unwrap()))
        .collect();
    assert_eq!(values, [10, 6, 3, 1]);
}

#[test]
fn a_history_of_a_key_is_that_of_the_call() {
    let db = open(2);
    write_each(&db, db.default_keyspace(), &["a", "b", "c"]);
    let history = db.history("key").unwrap();
    write_each(&db, db.default_keyspace(), &["d", "e", "f", "g"]);
    let values: Vec<_> = versions(history).into_iter().map(|(_, value)| value.unwrap()).collect();
    assert_eq!(values, ["c", "b", "a"]);
    assert_eq!(versions(db.history("no such key").unwrap()), []);
}

#[derive(Debug)]
struct KeepAll;

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keep-all"
    }

    fn filter(&self, _: &CompactionContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }
}

#[test]
fn invalid_histories_are_refused() {
    let invalid = |options: sievedb::KeyspaceOptions| {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).keyspace(options);
        match options.open(STORE_DIR) {
            Err(Error::InvalidOption { name, allowed }) => (name, allowed),
            other => panic!("{other:?}"),
        }
    };
    let new = small_keyspace;
    let zero = new().keep_history(HistoryLength::Sequences(0));
    assert_eq!(invalid(zero), ("keep_history", "more than zero"));
    let zero = new().keep_history(HistoryLength::Time(std::time::Duration::ZERO));
    assert_eq!(invalid(zero), ("keep_history", "more than zero"));
    let both = new().keep_history(HistoryLength::Sequences(1));
    let both = both.compaction_filter(Arc::new(KeepAll));
    assert_eq!(invalid(both), ("keep_history", "not beside a compaction filter"));
}

/// A repair copies the newest versions, and begins a new history.
#[test]
fn a_repaired_store_has_no_past() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let options = || small_options(Arc::clone(&fs) as _);
    let db = options().open(STORE_DIR).unwrap();
    let prices = db.keyspace_with("prices", &counters(1000)).unwrap();
    write_each(&db, &prices, &["a", "b", "c"]);
    drop((prices, db));
    options().repair(STORE_DIR, "repaired", OlderValues::LeaveOut).unwrap();
    for _ in 0..2 {
        let db = options().open("repaired").unwrap();
        let prices = db.open_keyspace("prices").unwrap();
        assert_eq!(versions(prices.history("key").unwrap()).len(), 1);
        assert_refused(prices.snapshot_at(0), Some(now(&db)));
        assert_eq!(prices.snapshot_at(now(&db)).unwrap().get("key").unwrap(), Some("c".into()));
    }
}

#[test]
fn merge_operands_older_than_the_history_are_merged_by_a_compaction() {
    let db = open(100);
    let counts = db.keyspace_with("counts", &counters(20)).unwrap();
    for _ in 0..100 {
        counts.merge("key", 1_u64.to_be_bytes()).unwrap();
    }
    counts.compact().unwrap();
    assert_eq!(versions(counts.history("key").unwrap()).len(), 21);
    for _ in 0..50 {
        db.insert("other", "").unwrap();
    }
    counts.compact().unwrap();
    assert_eq!(counts.approximate_len().unwrap(), 1);
    let found = versions(counts.history("key").unwrap());
    assert_eq!(found, [(None, Some(Bytes::copy_from_slice(&100_u64.to_be_bytes())))]);
}

/// A power cut may take back the writes before a history that is durable already.
#[test]
fn a_history_begins_at_the_present_after_a_power_cut() {
    let fs = Arc::new(MemoryFs::with_seed(1));
    let open = |fs: &Arc<MemoryFs>| small_options(Arc::clone(fs) as _).open(STORE_DIR).unwrap();
    let db = open(&fs);
    let prices = db.keyspace_with("prices", &small_keyspace()).unwrap();
    for _ in 0..10 {
        prices.insert("key", "a").unwrap();
    }
    let length = HistoryLength::Sequences(100);
    prices.set_options(prices.options().keep_history(length)).unwrap();
    let cut = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    let db = open(&cut);
    let prices = db.open_keyspace("prices").unwrap();
    let at = now(&db);
    prices.insert("key", "b").unwrap();
    assert_eq!(prices.snapshot_at(at).unwrap().get("key").unwrap(), None);
    prices.compact().unwrap();
    assert_eq!(prices.snapshot_at(at).unwrap().get("key").unwrap(), None);
}

#[test]
fn the_past_of_a_dropped_keyspace_is_not_read() {
    let db = open(100);
    let prices = db.keyspace_with("prices", &counters(100)).unwrap();
    let at = now(&db);
    db.drop_keyspace("prices").unwrap();
    assert!(matches!(prices.snapshot_at(at), Err(Error::KeyspaceDropped { .. })));
    assert!(matches!(prices.history("key"), Err(Error::KeyspaceDropped { .. })));
}
