//! Keyspaces store their options: an open need not repeat them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use sievedb::{
    Compression, Db, Durability, Error, Event, EventListener, FilterPolicy, FilterPolicyKind,
    Keyspace, KeyspaceOptions, Options, PrefixExtractor, PrefixFunction, clock::ManualClock,
};
use sievedb_doubles::{Loss, MemoryFs};

use super::small_store::STORE_DIR;

const NAMES: [&str; 2] = ["default", "other"];

/// Counts rebuilt filters.
#[derive(Debug, Default)]
struct Rebuilt(AtomicUsize);

impl EventListener for Rebuilt {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::FilterRebuilt { .. }) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// Extracts the first two bytes.
#[derive(Debug)]
struct TwoBytes;

impl PrefixFunction for TwoBytes {
    fn name(&self) -> &str {
        "two bytes"
    }

    fn prefix_length(&self, key: &[u8]) -> Option<usize> {
        (key.len() >= 2).then_some(2)
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        start.len() >= 2
    }
}

/// Returns options that all differ from those of a new keyspace.
fn keyspace(extractor: PrefixExtractor) -> KeyspaceOptions {
    // Uniform bits: with other kinds, new tables may change the plan of old filters.
    let policy = FilterPolicy::new(FilterPolicyKind::Bloom).bits_per_key(12.0);
    KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .table_bytes(16 << 10)
        .base_level_bytes(64 << 10)
        .block_bytes(1 << 10)
        .compression(Compression::None)
        .bottommost_compression(Compression::Lz4)
        .filter_policy(policy.memory_bytes_max(1 << 20))
        .prefix_extractor(extractor)
        .range_filter_bits_per_key(12.0)
}

/// Returns options without keyspace options.
fn plain(fs: &Arc<MemoryFs>, workers: usize) -> Options {
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    options.worker_threads(workers)
}

fn key(number: u32) -> [u8; 4] {
    (number * 64).to_be_bytes()
}

/// Writes these keys to the default keyspace and to "other", and flushes them.
fn write(db: &Db, numbers: std::ops::Range<u32>) {
    for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
        for number in numbers.clone() {
            keyspace.insert(key(number), [7; 40]).unwrap();
        }
        keyspace.flush().unwrap();
    }
}

/// Checks that every key is found, also by each of its prefixes.
fn check(db: &Db, keys: u32) {
    for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
        assert_eq!(keyspace.iter().count(), keys as usize);
        for number in (0..keys).step_by(37) {
            let key = key(number);
            for bytes in 1..=4 {
                let mut found = keyspace.prefix(&key[..bytes]).keys();
                assert!(found.any(|found| *found.unwrap() == key), "{number} by {bytes} bytes");
            }
            assert!(keyspace.range(key..=key).next().is_some(), "{number}");
        }
    }
}

fn options_of(db: &Db) -> [KeyspaceOptions; 2] {
    NAMES.map(|name| db.keyspace(name).unwrap().options())
}

/// Creates a compacted store of 800 keys in each keyspace.
fn filled(fs: &Arc<MemoryFs>, options: &KeyspaceOptions) {
    let db = plain(fs, 0).keyspace(options.clone()).open(STORE_DIR).unwrap();
    write(&db, 0..800);
    db.compact().unwrap();
    db.wait_for_background().unwrap();
}

/// An open without options keeps the stored ones and rebuilds no filter, neither then nor at the
/// next open with the options.
#[test]
fn open_without_options_keeps_stored_options() {
    let options = keyspace(PrefixExtractor::FixedLength(2));
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        filled(&fs, &options);
        let rebuilt = Arc::<Rebuilt>::default();
        let mut keys = 800;
        for (round, told) in [None, None, Some(options.clone()), None].into_iter().enumerate() {
            let name = format!("{workers} workers, round {round}");
            let open = plain(&fs, workers).listener(rebuilt.clone());
            let open = told.into_iter().fold(open, Options::keyspace);
            let db = open.open(STORE_DIR).unwrap();
            assert_eq!(options_of(&db), [options.clone(), options.clone()], "{name}");
            write(&db, keys..keys + 100);
            keys += 100;
            check(&db, keys);
            if round != 1 {
                db.compact().unwrap();
            }
            // Writes to the log only; the next process flushes it.
            for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
                keyspace.insert(key(keys), "log").unwrap();
            }
            keys += 1;
            db.wait_for_background().unwrap();
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{name}: {report}");
            assert_eq!(report.filters, 3 * report.tables, "{name}: {report}");
            assert_eq!(rebuilt.0.load(SeqCst), 0, "{name}");
            for keyspace in db.stats().keyspaces {
                assert_eq!(keyspace.options, options, "{name}");
            }
        }
    }
}

/// Filters of an unregistered prefix function are not probed, and are kept.
#[test]
fn filters_of_an_unknown_function_are_kept() {
    let options = keyspace(PrefixExtractor::Custom(Arc::new(TwoBytes)));
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        filled(&fs, &options);
        let rebuilt = Arc::<Rebuilt>::default();
        let open = || plain(&fs, workers).listener(rebuilt.clone());
        let asked = |db: &Db| {
            check(db, 800);
            let total = db.stats().total();
            (total.prefix_probes > 0, total.prefix_unusable > 0)
        };
        for round in 0..2 {
            let db = open().open(STORE_DIR).unwrap();
            assert_eq!(asked(&db), (false, true), "round {round}");
            db.wait_for_background().unwrap();
            for options in options_of(&db) {
                assert_eq!(options.get_prefix_extractor(), None);
                assert_eq!(options.get_prefix_extractor_name().unwrap(), "custom:two bytes");
            }
            // Other options change, and this one is kept.
            for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
                keyspace.set_options(keyspace.options().block_bytes(2048 << round)).unwrap();
            }
            db.wait_for_background().unwrap();
            drop(db);
            let db = open().prefix_function(Arc::new(TwoBytes)).open(STORE_DIR).unwrap();
            assert_eq!(asked(&db), (true, false), "round {round}");
            let report = db.verify().unwrap();
            assert!(report.is_good(), "{report}");
            assert_eq!(report.filters, 3 * report.tables, "{report}");
            let want = options.clone().block_bytes(2048 << round);
            assert_eq!(options_of(&db), [want.clone(), want]);
        }
        assert_eq!(rebuilt.0.load(SeqCst), 0, "{workers} workers");
    }
}

/// `Options::keyspace` replaces the stored options durably.
#[test]
fn options_of_an_open_are_stored() {
    let fs = Arc::new(MemoryFs::new());
    let options = keyspace(PrefixExtractor::FixedLength(2));
    filled(&fs, &options);
    let new = KeyspaceOptions::new().range_filter_bits_per_key(20.0);
    let db = plain(&fs, 0).keyspace(new.clone()).open(STORE_DIR).unwrap();
    assert_eq!(options_of(&db), [new.clone(), options.clone()]);
    check(&db, 800);
    drop(db);
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
    for fs in [fs, crashed] {
        let db = plain(&fs, 0).open(STORE_DIR).unwrap();
        assert_eq!(options_of(&db), [new.clone(), options.clone()]);
        assert_eq!(db.keyspace("third").unwrap().options(), KeyspaceOptions::new());
        check(&db, 800);
    }
}

/// Durable at return, and applied to later writes.
#[test]
fn options_may_change_while_the_store_is_open() {
    for workers in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let before = KeyspaceOptions::new().memtable_bytes(1 << 20);
        filled(&fs, &before);
        let db = plain(&fs, workers).open(STORE_DIR).unwrap();
        let new = keyspace(PrefixExtractor::FixedLength(2));
        let tables = |db: &Db| db.stats().keyspaces.iter().map(|it| it.tables).sum::<u64>();
        let rebuilt = |db: &Db| db.stats().background.filters_rebuilt;
        let (bytes, before_rebuilt) = (db.stats().keyspaces[0].table_bytes, rebuilt(&db));
        for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
            keyspace.set_options(new.clone()).unwrap();
            assert_eq!(keyspace.options(), new);
            // An existing keyspace keeps its options.
            let again = db.keyspace_with(&keyspace.name(), &KeyspaceOptions::new()).unwrap();
            assert_eq!(again.options(), new);
        }
        let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Everything));
        let reopened = plain(&crashed, 0).open(STORE_DIR).unwrap();
        assert_eq!(options_of(&reopened), [new.clone(), new.clone()]);
        check(&reopened, 800);
        drop(reopened);

        check(&db, 800);
        db.wait_for_background().unwrap();
        // Small point filters are close enough to the new target.
        let count = rebuilt(&db) - before_rebuilt;
        assert!((2 * tables(&db)..=3 * tables(&db)).contains(&count), "{count}");
        assert_eq!(db.stats().keyspaces[0].table_bytes, bytes, "the data are as they were");
        write(&db, 800..900);
        db.compact().unwrap();
        db.wait_for_background().unwrap();
        let none = |options: KeyspaceOptions| options.bottommost_compression(Compression::None);
        let of = |db: &Db| db.stats().keyspaces[0].table_bytes;
        let compressed = of(&db);
        for keyspace in NAMES.map(|name| db.keyspace(name).unwrap()) {
            keyspace.set_options(none(keyspace.options())).unwrap();
        }
        // All tables: one without an overlapping table is not rewritten.
        write(&db, 0..901);
        db.compact().unwrap();
        assert!(2 * of(&db) > 3 * compressed, "{} and {compressed}", of(&db));
        assert!(tables(&db) >= 4, "tables of 16 KiB: {}", db.stats());
        check(&db, 901);
        let report = db.verify().unwrap();
        assert!(report.is_good(), "{report}");
        assert_eq!(report.filters, 3 * report.tables, "{report}");
    }
}

#[test]
fn invalid_options_and_dropped_keyspaces_change_nothing() {
    let fs = Arc::new(MemoryFs::new());
    let db = plain(&fs, 0).open(STORE_DIR).unwrap();
    let dropped: Keyspace = db.keyspace("dropped").unwrap();
    let wrong = db.default_keyspace().set_options(db.default_keyspace().options().block_bytes(1));
    assert!(matches!(wrong, Err(Error::InvalidOption { name: "block_bytes", .. })), "{wrong:?}");
    assert_eq!(db.default_keyspace().options(), KeyspaceOptions::new());
    assert!(db.drop_keyspace("dropped").unwrap());
    let gone = dropped.set_options(KeyspaceOptions::new());
    assert!(matches!(gone, Err(Error::KeyspaceDropped { .. })), "{gone:?}");
    let kept = db.drop_keyspace("default").unwrap_err();
    assert!(matches!(&kept, Error::RequiredKeyspace { name } if name == "default"), "{kept:?}");
    assert!(kept.to_string().contains("cannot be dropped"), "{kept}");
}

/// The drop is before or after the write is added, and a new keyspace may have the same name.
#[test]
fn n10_batch_with_a_dropped_keyspace_writes_nothing() {
    for drop_first in [false, true] {
        let fs = Arc::new(MemoryFs::new());
        let db = plain(&fs, 0).open(STORE_DIR).unwrap();
        let dropped: Keyspace = db.keyspace("users").unwrap();
        let mut batch = db.batch();
        batch.insert(&db, "kept", "1").unwrap();
        if drop_first {
            db.drop_keyspace("users").unwrap();
        }
        batch.insert(&dropped, "lost", "1").unwrap();
        if !drop_first {
            db.drop_keyspace("users").unwrap();
        }
        let again = db.keyspace("users").unwrap();
        let refused = batch.commit(Durability::Disk);
        assert!(matches!(refused, Err(Error::KeyspaceDropped { .. })), "{refused:?}");
        assert!(db.iter().chain(again.iter()).next().is_none());
        assert_eq!(batch.len(), 2, "the batch is as it was");
        batch.clear();
        batch.insert(&again, "new", "1").unwrap();
        batch.commit(Durability::Disk).unwrap();
        drop((dropped, again, batch, db));
        let db = plain(&fs, 0).open(STORE_DIR).unwrap();
        let users = db.open_keyspace("users").unwrap();
        assert!(db.iter().next().is_none());
        assert_eq!(users.get("new").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
