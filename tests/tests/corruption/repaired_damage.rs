//! Random damage to one file: a repair returns all other data, and no replaced value.

use std::{collections::BTreeMap, ops::RangeBounds as _, sync::Arc};

use bytes::Bytes;
use sievedb::{Compression, Db, Durability, KeyspaceOptions, OlderValues, RepairReport};
use sievedb_doubles::MemoryFs;
use sievedb_tests::rng::Rng;

use super::{
    lost_manifest::{Contents, contents},
    repair::{NEW, options},
    sample::{Files, STORE_DIR, disk, files},
};

const SEED: u64 = 15;
const PLACES: usize = 14;
/// More for tables, which have more parts.
const TABLE_PLACES: usize = 90;
const KEYSPACES: [&str; 3] = ["default", "raw", "packed"];

type Key = (String, Vec<u8>);

/// A closed store.
struct Sample {
    files: Files,
    /// Its contents.
    whole: Contents,
    /// Contents of its tables.
    flushed: Contents,
    /// Writes that are only in the log, in order.
    logged: Vec<(Key, Option<Bytes>)>,
}

impl Sample {
    /// Returns whether `found` is the state after a prefix of the log.
    fn is_prefix(&self, found: &Contents) -> bool {
        let mut state = self.flushed.clone();
        let mut is_prefix = *found == state;
        for (key, value) in &self.logged {
            match value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(key)),
            }
            is_prefix |= *found == state;
        }
        is_prefix
    }
}

fn keyspace_options(name: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::new().block_bytes(1 << 10).table_bytes(64 << 10);
    match name {
        "raw" => options.compression(Compression::None),
        _ => options,
    }
}

/// Inserts and removes some keys with unique values. Returns the writes.
fn write(db: &Db, rng: &mut Rng, name: &str) -> Vec<(Key, Option<Bytes>)> {
    let mut written = Vec::new();
    let keyspace = db.keyspace_with(name, &keyspace_options(name)).unwrap();
    for _ in 0..150 {
        let key = (rng.below(600) as u32).to_be_bytes();
        let value = Bytes::from(rng.number().to_le_bytes().repeat(1 + rng.below(12)));
        let value = (rng.below(4) > 0).then_some(value);
        match &value {
            None => keyspace.remove(key).unwrap(),
            Some(value) => keyspace.insert(key, value).unwrap(),
        }
        written.push(((name.to_owned(), key.to_vec()), value));
    }
    written
}

fn sample() -> Sample {
    let mut rng = Rng::new(SEED);
    let fs = Arc::new(MemoryFs::with_seed(SEED));
    let open = options(&fs).keyspace(keyspace_options("default")).log_segment_bytes(16 << 10);
    let db = open.background_rewrites(false).open(STORE_DIR).unwrap();
    // Snapshots pin older versions, so that a block may end between two versions of a key.
    let mut snapshots = Vec::new();
    for round in 0..6 {
        for name in KEYSPACES.into_iter().chain(["gone"]) {
            write(&db, &mut rng, name);
            snapshots.push(db.snapshot());
            write(&db, &mut rng, name);
            db.keyspace(name).unwrap().flush().unwrap();
            if round == 3 {
                db.keyspace(name).unwrap().compact().unwrap();
            }
        }
    }
    db.drop_keyspace("gone").unwrap();
    let flushed = contents(&db);
    let logged = KEYSPACES.iter().flat_map(|name| write(&db, &mut rng, name)).collect();
    db.persist(Durability::Disk).unwrap();
    let whole = contents(&db);
    drop(snapshots);
    db.close().unwrap();
    Sample { files: files(&fs), whole, flushed, logged }
}

fn damage(bytes: &Bytes, rng: &mut Rng) -> (Option<Bytes>, String) {
    let mut changed = bytes.to_vec();
    let at = rng.below(bytes.len().max(1));
    let (how, left) = match rng.below(4) {
        _ if bytes.is_empty() => ("removed", false),
        0 => {
            changed[at] ^= 1 << rng.below(8);
            ("flipped", true)
        }
        1 => {
            changed.truncate(at);
            ("cut", true)
        }
        2 => {
            let end = changed.len().min(at + 512);
            changed.truncate(at);
            rng.fill(&mut changed, end - at);
            changed.extend_from_slice(&bytes[end..]);
            ("overwritten", true)
        }
        _ => ("removed", false),
    };
    (left.then(|| changed.into()), format!("{how} at {at} of {}", bytes.len()))
}

#[test]
fn n15_one_damaged_file_loses_only_reported_data() {
    let sample = sample();
    let mut rng = Rng::new(SEED);
    let mut kinds = BTreeMap::<&str, Vec<&String>>::new();
    for name in sample.files.keys() {
        let kind = name.rsplit('.').next().unwrap().split('-').next().unwrap();
        kinds.entry(kind).or_default().push(name);
    }
    for kind in ["sst", "log", "MANIFEST", "CURRENT", "CLOSED", "LOCK"] {
        assert!(kinds.contains_key(kind), "{kinds:?}");
    }
    let mut cases = 0;
    for (kind, names) in kinds {
        let places = if kind == "sst" { TABLE_PLACES } else { PLACES };
        for _ in 0..places {
            let name = *rng.pick(&names);
            let mut files = sample.files.clone();
            let (left, how) = damage(&files[name], &mut rng);
            match left {
                Some(left) => drop(files.insert(name.clone(), left)),
                None => drop(files.remove(name)),
            }
            check(&sample, &files, kind, &format!("seed {SEED}: {name} {how}"));
            cases += 1;
        }
    }
    println!("{cases} damaged files, seed {SEED}");
}

fn check(sample: &Sample, files: &Files, kind: &str, case: &str) {
    let fs = disk(files);
    let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut);
    let report = report.unwrap_or_else(|error| panic!("{case}: {error}"));
    let db = options(&fs).open(NEW).unwrap();
    let mut names = db.keyspaces();
    names.sort();
    assert_eq!(names, ["default", "packed", "raw"], "{case}: {report}");
    let found = contents(&db);
    if kind == "log" {
        assert!(sample.is_prefix(&found), "{case}: {report}");
        assert!(found == sample.whole || is_lost(&report), "{case}: {report}");
        return;
    }
    for (key, value) in &found {
        assert_eq!(sample.whole.get(key), Some(value), "{case}: {key:?}: {report}");
    }
    for key in sample.whole.keys().filter(|key| !found.contains_key(*key)) {
        assert!(names_key(&report, key), "{case}: {key:?} is gone: {report}");
    }
    if kind != "sst" {
        assert!(found == sample.whole, "{case}: {report}");
        assert_eq!(report.older, 0, "{case}: {report}");
        assert_eq!(is_lost(&report), kind == "MANIFEST" && report.is_rebuilt, "{case}: {report}");
    }
}

fn is_lost(report: &RepairReport) -> bool {
    !report.lost.is_empty()
}

/// Returns whether the report lists the key in a damaged table.
fn names_key(report: &RepairReport, (keyspace, key): &Key) -> bool {
    let key = Bytes::copy_from_slice(key);
    report.lost.iter().any(|lost| {
        lost.keyspace.as_ref() == Some(keyspace)
            && lost.keys.as_ref().is_some_and(|keys| keys.contains(&key))
    })
}
