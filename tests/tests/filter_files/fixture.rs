//! A store of several tables, and its expected contents.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sievedb::{
    Db, Event, EventListener, FilterPolicy, FilterPolicyKind, FilterRebuildReason, FilterRole,
    KeyspaceOptions, Options, clock::SystemClock, fs::Fs,
};
use sievedb_doubles::MemoryFs;

pub(super) const STORE_DIR: &str = "db";
/// Number of keys; every fourth is absent.
pub(super) const KEYS: u32 = 2_400;

/// Reports of a store about its filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) unusable: Vec<u64>,
    /// Rebuilt point filters.
    pub(super) rebuilt: Vec<(u64, FilterRebuildReason)>,
    /// Rebuilt prefix and range filters.
    pub(super) rebuilt_for_scans: Vec<(u64, FilterRole, FilterRebuildReason)>,
    pub(super) not_rebuilt: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Listener(Mutex<Told>);

impl EventListener for Listener {
    fn on_event(&self, event: &Event) {
        let mut told = self.0.lock().unwrap();
        match event {
            Event::FilterUnusable { table_id, reason, .. } => {
                assert!(!reason.is_empty());
                told.unusable.push(*table_id);
            }
            Event::FilterRebuilt { table_id, role: FilterRole::Point, reason, .. } => {
                told.rebuilt.push((*table_id, *reason));
            }
            Event::FilterRebuilt { table_id, role, reason, .. } => {
                told.rebuilt_for_scans.push((*table_id, *role, *reason));
            }
            Event::FilterNotRebuilt { table_id, .. } => told.not_rebuilt.push(*table_id),
            _ => {}
        }
    }
}

impl Listener {
    /// Returns the reports since the last call, ordered by table.
    pub(super) fn take(&self) -> Told {
        let mut told = std::mem::take(&mut *self.0.lock().unwrap());
        told.unusable.sort_unstable();
        told.rebuilt.sort_by_key(|(id, _)| *id);
        told.rebuilt_for_scans.sort_by_key(|(id, role, _)| (*id, *role));
        told
    }
}

pub(super) fn options(fs: Arc<dyn Fs>, policy: FilterPolicy, workers: usize) -> Options {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(256 << 10)
        .table_bytes(6 << 10)
        .block_bytes(1 << 10)
        .filter_policy(policy);
    Options::new()
        .fs(fs)
        .clock(Arc::new(SystemClock::new()))
        .worker_threads(workers)
        // Only filters may change.
        .idle_compactions(false)
        .block_cache_bytes(1 << 20)
        .keyspace(keyspace)
}

pub(super) fn bloom() -> FilterPolicy {
    FilterPolicy::new(FilterPolicyKind::Bloom)
}

pub(super) fn key(number: u32) -> [u8; 8] {
    let mixed = number.wrapping_mul(0x9e37_79b9);
    (u64::from(mixed) << 32 | u64::from(number)).to_be_bytes()
}

fn is_stored(number: u32) -> bool {
    number % 4 != 3
}

/// Creates a store with a run of several tables on the last level and two runs on level 0, in two
/// keyspaces.
pub(super) fn filled(policy: FilterPolicy) -> Arc<MemoryFs> {
    let fs = Arc::new(MemoryFs::new());
    let db = options(fs.clone(), policy, 0).open(STORE_DIR).unwrap();
    let other = db.keyspace("other").unwrap();
    let numbers = || (0..KEYS).filter(|&number| is_stored(number));
    for number in numbers().filter(|number| number % 3 != 0) {
        db.insert(key(number), number.to_be_bytes()).unwrap();
        other.insert(key(number), "other").unwrap();
    }
    db.compact().unwrap();
    for rest in [0, 3] {
        for number in numbers().filter(|number| number % 6 == rest) {
            db.insert(key(number), number.to_be_bytes()).unwrap();
        }
        db.flush().unwrap();
    }
    assert!(db.stats().keyspaces[0].runs >= 3 && db.stats().keyspaces[0].tables >= 5);
    drop(db);
    fs
}

/// Checks that exactly the present keys are found.
pub(super) fn check(db: &Db) {
    let other = db.keyspace("other").unwrap();
    for number in 0..KEYS {
        let (key, want) = (key(number), is_stored(number).then(|| number.to_be_bytes().to_vec()));
        assert_eq!(db.get(key).unwrap().map(|value| value.to_vec()), want, "{number}");
        assert!(want.is_none() || db.may_contain(key), "{number} is ruled out");
        let in_other = is_stored(number) && number % 3 != 0;
        assert_eq!(other.contains_key(key).unwrap(), in_other, "{number} in other");
    }
}

/// Returns the number of absent keys that `may_contain` rejects, of [`KEYS`] `/ 4`.
pub(super) fn ruled_out(db: &Db) -> usize {
    (0..KEYS).filter(|&number| !is_stored(number) && !db.may_contain(key(number))).count()
}

/// Returns the paths of files with this suffix.
pub(super) fn paths(fs: &MemoryFs, end: &str) -> Vec<PathBuf> {
    let names = fs.list(Path::new(STORE_DIR)).unwrap();
    let names = names.into_iter().filter(|name| name.ends_with(end) || name.starts_with(end));
    names.map(|name| Path::new(STORE_DIR).join(name)).collect()
}

pub(super) fn read(fs: &MemoryFs, path: &Path) -> Vec<u8> {
    fs.read(path.to_str().unwrap()).unwrap().to_vec()
}

/// Changes a file on disk.
pub(super) fn change(fs: &MemoryFs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = read(fs, path);
    change(&mut bytes);
    fs.replace(path, bytes).unwrap();
}

/// Returns the number in a file's name.
pub(super) fn id(path: &Path) -> u64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}
