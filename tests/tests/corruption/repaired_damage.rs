//! Any one file is damaged at random: a repair returns all else, and nothing that had been replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeBounds as _,
    sync::Arc,
};

use bytes::Bytes;
use sievedb::{
    Compression, Db, Durability, KeyspaceOptions, OlderValues, RepairReport, fs::MemoryFs,
};
use sievedb_tests::rng::Rng;

use super::{
    lost_manifest::{Contents, contents},
    repair::{NEW, options},
    sample::{FOLDER, Files, disk, files},
};

const SEED: u64 = 15;
const PLACES: usize = 14;
const KEYSPACES: [&str; 3] = ["default", "raw", "packed"];

type Key = (String, Vec<u8>);

/// A closed store, what it holds, and which keys the log has.
struct Sample {
    files: Files,
    whole: Contents,
    logged: BTreeSet<Key>,
}

fn keyspace_options(name: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::new().block_bytes(1 << 10).table_bytes(64 << 10);
    match name {
        "raw" => options.compression(Compression::None),
        _ => options,
    }
}

/// Inserts and removes some keys, each value once.
fn write(db: &Db, rng: &mut Rng, name: &str, logged: &mut BTreeSet<Key>) {
    let keyspace = db.keyspace_with(name, &keyspace_options(name)).unwrap();
    for _ in 0..150 {
        let key = (rng.below(600) as u32).to_be_bytes();
        let value = rng.number().to_le_bytes().repeat(1 + rng.below(12));
        match rng.below(4) {
            0 => keyspace.remove(key).unwrap(),
            _ => keyspace.insert(key, value).unwrap(),
        }
        logged.insert((name.to_owned(), key.to_vec()));
    }
}

fn sample() -> Sample {
    let mut rng = Rng::new(SEED);
    let fs = Arc::new(MemoryFs::with_seed(SEED));
    let open = options(&fs).keyspace(keyspace_options("default")).log_segment_bytes(16 << 10);
    let db = open.background_rewrites(false).open(FOLDER).unwrap();
    let mut logged = BTreeSet::new();
    for round in 0..6 {
        for name in KEYSPACES.into_iter().chain(["gone"]) {
            write(&db, &mut rng, name, &mut logged);
            db.keyspace(name).unwrap().flush().unwrap();
            if round == 3 {
                db.keyspace(name).unwrap().compact().unwrap();
            }
        }
    }
    db.drop_keyspace("gone").unwrap();
    logged.clear();
    for name in KEYSPACES {
        write(&db, &mut rng, name, &mut logged);
    }
    db.persist(Durability::Disk).unwrap();
    let whole = contents(&db);
    db.close().unwrap();
    Sample { files: files(&fs), whole, logged }
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
fn n15_one_damaged_file_loses_what_is_reported_and_nothing_else() {
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
        for _ in 0..PLACES {
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
    let report = options(&fs).repair(FOLDER, NEW, OlderValues::LeaveOut);
    let report = report.unwrap_or_else(|error| panic!("{case}: {error}"));
    let db = options(&fs).open(NEW).unwrap();
    let mut names = db.keyspaces();
    names.sort();
    assert_eq!(names, ["default", "packed", "raw"], "{case}: {report}");
    let found = contents(&db);
    // Of what a lost log held nothing is known.
    let is_logged = |key: &Key| kind == "log" && sample.logged.contains(key);
    for (key, value) in &found {
        let is_newest = sample.whole.get(key) == Some(value);
        assert!(is_newest || is_logged(key) && is_lost(&report), "{case}: {key:?}: {report}");
    }
    for key in sample.whole.keys().filter(|key| !found.contains_key(*key)) {
        let is_reported = is_logged(key) && is_lost(&report) || names_key(&report, key);
        assert!(is_reported, "{case}: {key:?} is gone: {report}");
    }
    if !["sst", "log"].contains(&kind) {
        assert!(found == sample.whole, "{case}: {report}");
        assert_eq!(report.older, 0, "{case}: {report}");
        assert_eq!(is_lost(&report), kind == "MANIFEST" && report.is_rebuilt, "{case}: {report}");
    }
}

fn is_lost(report: &RepairReport) -> bool {
    !report.lost.is_empty()
}

/// Returns whether the report names the key among those of a damaged table.
fn names_key(report: &RepairReport, (keyspace, key): &Key) -> bool {
    let key = Bytes::copy_from_slice(key);
    report.lost.iter().any(|lost| {
        lost.keyspace.as_ref() == Some(keyspace)
            && lost.keys.as_ref().is_some_and(|keys| keys.contains(&key))
    })
}
