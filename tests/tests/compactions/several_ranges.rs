//! A compaction of several ranges of keys writes what one of a single range writes.

use std::{sync::Arc, time::Duration};

use sievedb::{
    Append, Bytes, CompactionContext, CompactionFilter, Db, Decision, KeyspaceOptions, Options,
    Result, Snapshot, clock::ManualClock,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_options},
};

use super::tables;

const KEYS: usize = 300;
const CALLS: usize = 400;
const RANGES: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

type Contents = Vec<(Bytes, Bytes)>;

/// A store, and snapshots of it.
struct Twin {
    options: Options,
    clock: Arc<ManualClock>,
    db: Option<Db>,
    snapshots: Vec<Snapshot>,
}

impl Twin {
    fn new(keyspace: &KeyspaceOptions, ranges: usize, workers: usize) -> Self {
        let clock = Arc::new(ManualClock::new());
        let options = small_options(Arc::new(MemoryFs::with_seed(1))).clock(clock.clone());
        let options = options.log_segment_bytes(1 << 20).log_bytes_max(4 << 20);
        let options = options.keyspace(keyspace.clone()).worker_threads(workers);
        let options = options.compaction_ranges(ranges);
        let db = Some(options.clone().open(STORE_DIR).unwrap());
        Self { options, clock, db, snapshots: Vec::new() }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db = None;
        self.db = Some(self.options.clone().open(STORE_DIR).unwrap());
    }

    /// Reads the store in every way.
    fn contents(&self) -> Vec<Contents> {
        let db = self.db();
        let all: Contents = db.iter().map(Result::unwrap).collect();
        let mut back: Contents = db.iter().rev().map(Result::unwrap).collect();
        back.reverse();
        assert_eq!(all, back);
        let found = db.get_many((0..KEYS).map(key)).unwrap();
        for (number, many) in found.iter().enumerate() {
            let key = key(number);
            let got = db.get(&key).unwrap();
            assert_eq!(got, *many);
            assert_eq!(db.contains_key(&key).unwrap(), got.is_some());
            let scanned = all.binary_search_by(|(other, _)| (**other).cmp(key.as_bytes()));
            assert_eq!(scanned.ok().map(|at| &all[at].1), got.as_ref(), "{key}");
        }
        let of_snapshot = |snapshot: &Snapshot| {
            let scanned: Contents = snapshot.iter().map(Result::unwrap).collect();
            for number in 0..KEYS {
                let got = snapshot.get(key(number)).unwrap();
                let entry = scanned.iter().find(|(other, _)| **other == *key(number).as_bytes());
                assert_eq!(entry.map(|(_, value)| value), got.as_ref());
            }
            scanned
        };
        let of_snapshots: Vec<_> = self.snapshots.iter().map(of_snapshot).collect();
        [vec![all], of_snapshots].concat()
    }
}

fn key(number: usize) -> String {
    format!("key{number:03}")
}

/// Makes a random call of both stores.
fn call(lots: &mut Rng, twins: &mut [Twin; 2]) {
    let (first, second) = (lots.below(KEYS), lots.below(KEYS));
    let (least, most) = (first.min(second), first.max(second));
    let mut value = Vec::new();
    let bytes = *lots.pick(&[0, 30, 200, 1_500]);
    lots.fill(&mut value, bytes);
    let lot = lots.below(100);
    for twin in twins {
        let db = twin.db.as_ref().unwrap();
        match lot {
            0..40 => db.insert(key(first), &value).unwrap(),
            40..55 => db.remove(key(first)).unwrap(),
            55..75 => db.merge(key(first), &value[..value.len().min(30)]).unwrap(),
            75..85 => db.insert_with_ttl(key(first), &value, SECOND * 20).unwrap(),
            85..88 => db.remove_range(key(least)..key(most)).unwrap(),
            88 => db.remove_range(key(most)..).unwrap(),
            89..92 => twin.snapshots.push(db.snapshot()),
            92..94 => drop(twin.snapshots.pop()),
            94..97 => twin.clock.advance(SECOND * 5),
            _ => db.flush().unwrap(),
        }
    }
}

#[test]
fn several_ranges_write_what_one_writes() {
    let first = seed("several ranges", 1);
    let mut more = 0;
    for seed in first..first + 4 {
        let mut lots = Rng::new(seed);
        let keyspace = KeyspaceOptions::new()
            .memtable_bytes(*lots.pick(&[16 << 10, 1 << 20]))
            .table_bytes(*lots.pick(&[4 << 10, 16 << 10, 16 << 20]))
            .base_level_bytes(64 << 10)
            .block_bytes(1 << 10)
            .merge_operator(Arc::new(Append::new()));
        let keyspace = if lots.chance(1, 2) { keyspace.blob_value_bytes(1_000) } else { keyspace };
        let workers = *lots.pick(&[0, 4]);
        let mut twins = [Twin::new(&keyspace, 1, 0), Twin::new(&keyspace, RANGES, workers)];
        for round in 0..6 {
            (0..CALLS).for_each(|_| call(&mut lots, &mut twins));
            let name = format!("SIEVE_SEED={seed}, round {round}");
            let before = twins[0].contents();
            assert_eq!(before, twins[1].contents(), "{name}");
            if lots.chance(1, 3) {
                twins.iter().for_each(|twin| twin.db().compact_range(key(50)..key(200)).unwrap());
            } else {
                twins.iter().for_each(|twin| twin.db().compact().unwrap());
                more += usize::from(
                    tables(&twins[1].db().stats()).1 > tables(&twins[0].db().stats()).1,
                );
            }
            for twin in &twins {
                assert_eq!(twin.contents(), before, "{name}");
                assert_eq!(twin.db().verify().unwrap().problems.len(), 0, "{name}");
            }
            if lots.chance(1, 3) {
                twins.iter_mut().for_each(Twin::reopen);
                assert_eq!(twins[0].contents(), twins[1].contents(), "{name}");
            }
        }
    }
    assert!(more > 3, "only {more} compactions wrote more tables in several ranges");
}

/// Notes that keys do not ascend.
#[derive(Debug)]
struct Ascending;

impl CompactionFilter for Ascending {
    fn name(&self) -> &str {
        "ascending"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], _: &[u8]) -> Decision {
        match key.ends_with(b"050") {
            true => Decision::RemoveAndSkipUntil(b"key250".into()),
            false => Decision::Keep,
        }
    }
}

/// Its calls are in the order of all keys, and may remove keys up to any later one.
#[test]
fn a_compaction_with_a_filter_has_one_range() {
    let keyspace = KeyspaceOptions::new().compaction_filter(Arc::new(Ascending));
    let options = Options::new().fs(Arc::new(MemoryFs::new())).keyspace(keyspace);
    let db = options.worker_threads(0).compaction_ranges(RANGES).open("db").unwrap();
    (0..KEYS).for_each(|number| db.insert(key(number), [7; 100]).unwrap());
    db.compact().unwrap();
    let left = (0..50).chain(250..KEYS).map(key);
    assert!(db.iter().keys().map(|key| key.unwrap().to_vec()).eq(left.map(String::into_bytes)));
    assert_eq!(tables(&db.stats()), (0, 1));
}
