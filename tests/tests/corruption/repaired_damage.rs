//! Random damage to one file: a repair returns all other data, and no replaced value.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::{Range, RangeBounds as _},
    sync::Arc,
};

use bytes::Bytes;
use sievedb::{
    Compression, Db, Durability, Error, FilterPolicy, FilterPolicyKind, KeyspaceOptions,
    OlderValues, RepairReport,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{from_env, report, seed},
};

use super::{
    lost_manifest::{Contents, contents},
    repair::{NEW, options},
    sample::{Files, STORE_DIR, disk, files},
};

const SEED: u64 = 15;
/// Places of each damage, in the files of a kind. `SIEVE_REPAIR_PLACES` sets another number.
const PLACES: usize = 5;
/// More for tables, which have more parts.
const TABLE_PLACES: usize = 6 * PLACES;
/// More than a block with its neighbours, in bytes.
const REACH_BYTES: usize = 4 << 10;
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
    /// Values in tables without compression: table, offset, key.
    raw: Vec<(String, usize, Key)>,
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

    /// Returns whether the key had this value when the tables or a prefix of the log was all.
    fn is_current(&self, key: &Key, value: &Bytes) -> bool {
        let mut logged = self.logged.iter().filter(|(of, _)| of == key);
        self.flushed.get(key) == Some(value)
            || logged.any(|(_, logged)| logged.as_ref() == Some(value))
    }

    /// Returns the uncompressed keys whose newest value is in the damaged table, but not near the
    /// damage.
    fn keys_apart(&self, damaged: &Damaged) -> Vec<&Key> {
        let Range { start, end } = damaged.places;
        let near = start.saturating_sub(REACH_BYTES)..end + REACH_BYTES;
        let places =
            self.raw.iter().filter(|(name, at, _)| *name == damaged.name && !near.contains(at));
        places.map(|(_, _, key)| key).collect()
    }
}

/// Returns the tables and offsets of the uncompressed values. Each begins with a number of its own.
fn raw_places(files: &Files, whole: &Contents) -> Vec<(String, usize, Key)> {
    let raw = whole.iter().filter(|((keyspace, _), _)| keyspace == "raw");
    let keys: BTreeMap<_, _> = raw.map(|(key, value)| (&value[..8], (key, value))).collect();
    let mut places = Vec::new();
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".sst")) {
        for at in 0..bytes.len() - 8 {
            match keys.get(&bytes[at..at + 8]) {
                Some((key, value)) if bytes[at..].starts_with(value) => {
                    places.push((name.clone(), at, (*key).clone()));
                }
                _ => {}
            }
        }
    }
    places
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

fn sample(seed: u64) -> Sample {
    let mut rng = Rng::new(seed);
    let fs = Arc::new(MemoryFs::with_seed(seed));
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
    let db = options(&fs).open(STORE_DIR).unwrap();
    for kind in [FilterPolicyKind::None, FilterPolicyKind::Bloom] {
        db.default_keyspace().set_filter_policy(FilterPolicy::new(kind)).unwrap();
        db.wait_for_background().unwrap();
    }
    db.close().unwrap();
    let files = files(&fs);
    let raw = raw_places(&files, &whole);
    Sample { files, whole, flushed, logged, raw }
}

/// A way to damage a file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip,
    Cut,
    Overwrite,
    Lose,
}

/// A file that is damaged or missing.
struct Damaged {
    name: String,
    left: Option<Bytes>,
    /// Its bytes that are damaged or missing.
    places: Range<usize>,
}

impl Damage {
    fn of(self, name: &str, bytes: &Bytes, rng: &mut Rng) -> Damaged {
        let mut changed = bytes.to_vec();
        let at = rng.below(bytes.len().max(1));
        let (is_left, places) = match self {
            _ if bytes.is_empty() => (false, 0..0),
            Self::Flip => {
                changed[at] ^= 1 << rng.below(8);
                (true, at..at + 1)
            }
            Self::Cut => {
                changed.truncate(at);
                (true, at..bytes.len())
            }
            Self::Overwrite => {
                let end = changed.len().min(at + 512);
                changed.truncate(at);
                rng.fill(&mut changed, end - at);
                changed.extend_from_slice(&bytes[end..]);
                (true, at..end)
            }
            Self::Lose => (false, 0..bytes.len()),
        };
        Damaged { name: name.to_owned(), left: is_left.then(|| changed.into()), places }
    }
}

impl Damaged {
    fn apply(&self, files: &mut Files) {
        match &self.left {
            Some(left) => drop(files.insert(self.name.clone(), left.clone())),
            None => drop(files.remove(&self.name)),
        }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, left, places } = self;
        write!(f, "{name} damaged at {places:?}, {:?} left", left.as_ref().map(Bytes::len))
    }
}

/// Returns the names of files by kind.
fn kinds(files: &Files) -> BTreeMap<&str, Vec<&String>> {
    let mut kinds = BTreeMap::<&str, Vec<&String>>::new();
    for name in files.keys() {
        let kind = name.rsplit('.').next().unwrap().split('-').next().unwrap();
        kinds.entry(kind).or_default().push(name);
    }
    for kind in ["sst", "filter", "log", "MANIFEST", "CURRENT", "CLOSED", "LOCK"] {
        assert!(kinds.contains_key(kind), "{kinds:?}");
    }
    kinds
}

fn places_of(kind: &str) -> usize {
    from_env("SIEVE_REPAIR_PLACES", if kind == "sst" { TABLE_PLACES } else { PLACES })
}

#[test]
fn n15_one_damaged_file_loses_only_reported_data() {
    let seed = seed("repair", SEED);
    let sample = sample(seed);
    let mut rng = Rng::new(seed);
    let (mut cases, mut kept) = (0, 0);
    for (kind, names) in kinds(&sample.files) {
        let random =
            (0..places_of(kind)).flat_map(|_| [Damage::Flip, Damage::Cut, Damage::Overwrite]);
        let lost = names.iter().map(|name| (*name, Damage::Lose));
        let damages: Vec<_> =
            random.map(|damage| (*rng.pick(&names), damage)).chain(lost).collect();
        for (name, damage) in damages {
            let damaged = damage.of(name, &sample.files[name], &mut rng);
            kept += check(&sample, &damaged, kind);
            cases += 1;
        }
    }
    assert!(kept > 0, "no key has its value in an undamaged block of a damaged table");
    report(&format!(
        "repair: {cases} damaged files of 7 kinds, {kept} keys of undamaged blocks, 0 violations"
    ));
}

/// Returns the number of keys that only an undamaged block of the damaged table has.
fn check(sample: &Sample, damaged: &Damaged, kind: &str) -> usize {
    let mut files = sample.files.clone();
    damaged.apply(&mut files);
    let (fs, case) = (disk(&files), damaged.to_string());
    let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut);
    let report = report.unwrap_or_else(|error| panic!("{case}: {error}"));
    let db = options(&fs).open(NEW).unwrap();
    let mut names = db.keyspaces().unwrap();
    names.sort();
    assert_eq!(names, ["default", "packed", "raw"], "{case}: {report}");
    let found = contents(&db);
    if kind == "log" {
        assert!(sample.is_prefix(&found), "{case}: {report}");
        assert!(found == sample.whole || is_lost(&report), "{case}: {report}");
        return 0;
    }
    for (key, value) in &found {
        assert_eq!(sample.whole.get(key), Some(value), "{case}: {key:?}: {report}");
    }
    let missing = || sample.whole.keys().filter(|key| !found.contains_key(*key));
    for key in missing() {
        assert!(names_key(&report, key), "{case}: {key:?} is gone: {report}");
    }
    if kind != "sst" {
        assert!(found == sample.whole, "{case}: {report}");
        assert_eq!(report.older, 0, "{case}: {report}");
        assert_eq!(is_lost(&report), kind == "MANIFEST" && report.is_rebuilt, "{case}: {report}");
        return 0;
    }
    let keyspaces: BTreeSet<_> = missing().map(|(keyspace, _)| keyspace).collect();
    assert!(keyspaces.len() <= 1, "{case}: {keyspaces:?}: {report}");
    let undamaged = sample.keys_apart(damaged);
    for key in &undamaged {
        assert!(found.contains_key(*key), "{case}: {key:?} is in an undamaged block: {report}");
    }
    undamaged.len()
}

/// Several files at once. Without a manifest a missing table is not noticed, and what a cut log
/// had is unknown; else each value is the newest of the tables, or of the log.
#[test]
fn several_damaged_files_return_no_replaced_value() {
    let seed = seed("repair", SEED);
    let sample = sample(seed);
    let mut rng = Rng::new(seed);
    let (mut repaired, mut refused) = (0, 0);
    let names: Vec<_> = sample.files.keys().collect();
    for _ in 0..8 * places_of("log") {
        let mut files = sample.files.clone();
        let (mut case, mut is_table_lost) = (String::new(), false);
        for _ in 0..2 + rng.below(5) {
            let damage = *rng.pick(&[Damage::Flip, Damage::Cut, Damage::Overwrite, Damage::Lose]);
            let name = *rng.pick(&names);
            let damaged = damage.of(name, &sample.files[name], &mut rng);
            damaged.apply(&mut files);
            is_table_lost |= name.ends_with(".sst") && damaged.left.is_none();
            case += &format!("{damaged}; ");
        }
        let fs = disk(&files);
        match options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut) {
            Ok(report) => {
                repaired += 1;
                let may_be_older = report.is_rebuilt
                    && (is_table_lost || report.tables_unknown > 0 || report.logs_cut > 0);
                let db = options(&fs).open(NEW).unwrap();
                assert!(db.verify().unwrap().is_good(), "{case}: {report}");
                for (key, value) in contents(&db) {
                    let is_current = may_be_older || sample.is_current(&key, &value);
                    assert!(is_current, "{case}: {key:?} has a replaced value: {report}");
                }
            }
            Err(Error::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("{case}: {error}"),
        }
    }
    assert!(repaired > refused, "{repaired} {refused}");
    report(&format!("repair: {repaired} stores with several damaged files, 0 violations"));
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
