//! A small store with its history, as files in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use sievedb::{
    Db, KeyspaceOptions, Options, PrefixExtractor, ReadMode, Result, clock::ManualClock, fs::Fs,
};
use sievedb_doubles::MemoryFs;

/// Directory of every sample.
pub(super) const STORE_DIR: &str = "db";
/// Keyspaces of a sample.
pub(super) const KEYSPACES: [&str; 2] = ["default", "users"];

/// Contents of each keyspace, in the order of [`KEYSPACES`].
pub(super) type State = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// Files by name.
pub(super) type Files = BTreeMap<String, Bytes>;

/// Position in a log: file number, offset.
pub(super) type LogPosition = (u64, u64);

/// A small store: its files and legal states.
pub(super) struct Sample {
    pub(super) files: Files,
    /// State after each write; the first is empty.
    pub(super) history: Vec<State>,
    /// End of the log record of each write: one fewer than `history`.
    pub(super) log_ends: Vec<LogPosition>,
    /// Everything before is in tables, so the manifest marks it as synced.
    pub(super) flushed: LogPosition,
}

impl Sample {
    /// Returns the names of files with this prefix and suffix.
    pub(super) fn names(&self, start: &str, end: &str) -> Vec<String> {
        let names = self.files.keys().filter(|name| name.starts_with(start) && name.ends_with(end));
        names.cloned().collect()
    }

    /// Returns the number of the newest state.
    pub(super) fn last_state(&self) -> usize {
        self.history.len() - 1
    }

    /// Returns the number of the state without the log from `position` on.
    pub(super) fn state_before(&self, position: LogPosition) -> usize {
        self.log_ends.iter().take_while(|&&end| end <= position).count()
    }

    /// Returns every key ever written, and some that never were.
    pub(super) fn keys(&self, keyspace: usize) -> BTreeSet<Vec<u8>> {
        let stored = self.history.iter().flat_map(|state| state[keyspace].keys().cloned());
        let absent = [&b""[..], b"k", b"k05x", b"zzz", b"\xff\xff"];
        stored.chain(absent.map(<[u8]>::to_vec)).collect()
    }

    /// Returns the files with another file `name`.
    pub(super) fn with(&self, name: &str, bytes: impl Into<Bytes>) -> Files {
        let mut files = self.files.clone();
        files.insert(name.to_owned(), bytes.into());
        files
    }
}

/// Returns the number in the name of a log or table.
pub(super) fn file_id(name: &str) -> u64 {
    let digits = name.split('.').next().expect("a name is not empty");
    digits.parse().expect("logs and tables are named by a number")
}

/// Returns a disk with `files`.
pub(super) fn disk(files: &Files) -> Arc<MemoryFs> {
    let fs = MemoryFs::new();
    fs.create_dir(Path::new(STORE_DIR)).expect("the disk is empty");
    for (name, bytes) in files {
        fs.replace(Path::new(STORE_DIR).join(name), bytes.clone()).expect("the directory is there");
    }
    Arc::new(fs)
}

/// Returns the files of a disk.
pub(super) fn files(fs: &MemoryFs) -> Files {
    let contents = fs.contents().into_iter();
    let name = |path: &str| path.rsplit('/').next().expect("a path has a last part").to_owned();
    contents.map(|(path, bytes)| (name(&path), bytes)).collect()
}

/// Opens the store on `fs`: small, without threads, and without a cache, so that every read counts.
pub(super) fn open(fs: Arc<MemoryFs>, mode: ReadMode) -> Result<Db> {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(64 << 10)
        .block_bytes(1 << 10)
        .prefix_extractor(PrefixExtractor::FixedLength(2));
    let options = Options::new()
        .fs(fs)
        .clock(Arc::new(ManualClock::new()))
        .worker_threads(0)
        .block_cache_bytes(0)
        .log_segment_bytes(4 << 10)
        .log_bytes_max(1 << 20)
        .read_mode(mode)
        .keyspace(keyspace);
    options.open(STORE_DIR)
}
