//! Creation of samples.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sievedb::{Batch, Db, Durability, FilterPolicy, FilterPolicyKind, Keyspace, ReadMode};
use sievedb_doubles::MemoryFs;
use sievedb_tests::filtered::RemoveGone;

use super::{
    log_record::records_end,
    sample::{Files, KEYSPACES, LogPosition, STORE_DIR, Sample, State, file_id, files, open},
};

/// End of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A power cut that keeps everything.
    PowerCut,
    /// A clean close.
    Closed,
}

/// Returns the files of a disk, logs without their reserved bytes; tests add those where they
/// matter.
fn written(fs: &MemoryFs) -> Files {
    let mut files = files(fs);
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".log")) {
        bytes.truncate(records_end(bytes));
    }
    files
}

/// A store during its creation, with its history.
struct Script {
    fs: Arc<MemoryFs>,
    db: Db,
    keyspaces: [Keyspace; 2],
    history: Vec<State>,
    log_ends: Vec<LogPosition>,
    flushed: LogPosition,
    random: u64,
}

/// One entry of a batch: keyspace, key, and the value unless the key is removed.
type Entry<'a> = (usize, &'a str, Option<Vec<u8>>);

/// Creates a store with tables on two levels in two keyspaces, a finished log segment and an
/// unfinished one, both partly marked as synced.
pub(super) fn sample(end: End) -> Sample {
    seeded_sample(end, 0)
}

/// Creates the same files with the same lengths, another store id and other salts.
pub(super) fn sibling(end: End) -> Sample {
    seeded_sample(end, 1)
}

fn seeded_sample(end: End, seed: u64) -> Sample {
    let mut script = Script::begin(seed);
    script.tables();
    script.logs();
    script.end(end)
}

/// Creates the same tables with filters that were dropped and rebuilt in filter files; the manifest
/// has every step.
pub(super) fn rebuilt_filters(end: End) -> Sample {
    let mut script = Script::begin(0);
    script.tables();
    for kind in [FilterPolicyKind::None, FilterPolicyKind::Bloom] {
        for keyspace in &script.keyspaces {
            keyspace.set_filter_policy(FilterPolicy::new(kind)).unwrap();
        }
        script.db.wait_for_background().unwrap();
    }
    script.end(end)
}

/// Creates a store with range deletes in tables and logs. The second keyspace has a default TTL and
/// a compaction filter.
pub(super) fn range_deletes(end: End) -> Sample {
    let mut script = Script::begin(0);
    let users = &script.keyspaces[1];
    let options = users.options().default_ttl(Duration::from_secs(3600));
    users.set_options(options.compaction_filter(Arc::new(RemoveGone))).unwrap();
    for at in 0..12 {
        let value = script.text(60);
        let user = (1, &*format!("u{at:02}"), Some(value.clone()));
        script.write(&[(0, &format!("k{at:02}"), Some(value)), user], Durability::OsBuffer);
    }
    script.db.compact().unwrap();
    for (keyspace, start, end) in [(0, "k02", "k04"), (0, "k07", "k09"), (1, "u01", "u03")] {
        script.remove_range(keyspace, start, end, Durability::OsBuffer);
    }
    script.remove_range(1, "u05", "u06", Durability::OsBuffer);
    let value = script.text(20);
    script.write(&[(0, "k08", Some(value.clone())), (1, "u02", Some(value))], Durability::OsBuffer);
    script.db.flush().unwrap();
    script.flushed = script.log_end();
    script.remove_range(0, "k00", "k02", Durability::Disk);
    script.remove_range(1, "u08", "u11", Durability::OsBuffer);
    let value = script.text(20);
    script.write(&[(1, "u09", Some(value))], Durability::OsBuffer);
    script.end(end)
}

/// Creates a store with one table, whose filter is small, in the default keyspace.
pub(super) fn one_table() -> Sample {
    let mut script = Script::begin(0);
    for at in 0..48 {
        let value = script.text(20);
        script.write(&[(0, &format!("k{at:02}"), Some(value))], Durability::OsBuffer);
    }
    script.db.compact().unwrap();
    script.flushed = script.log_end();
    script.end(End::Closed)
}

impl Script {
    fn begin(seed: u64) -> Self {
        let fs = Arc::new(MemoryFs::with_seed(seed));
        let db = open(Arc::clone(&fs), ReadMode::Pread).unwrap();
        let keyspaces = KEYSPACES.map(|name| db.keyspace(name).unwrap());
        let history = vec![[BTreeMap::new(), BTreeMap::new()]];
        let (log_ends, flushed) = (Vec::new(), (0, 0));
        Self { fs, db, keyspaces, history, log_ends, flushed, random: 0x5157_0001 }
    }

    fn write(&mut self, entries: &[Entry<'_>], durability: Durability) {
        let mut batch: Batch = self.db.batch();
        let mut state = self.history.last().expect("the first state is empty").clone();
        for (keyspace, key, value) in entries {
            let handle = &self.keyspaces[*keyspace];
            if let Some(value) = value {
                batch.insert(handle, key, value).unwrap();
                state[*keyspace].insert(key.as_bytes().to_vec(), value.clone());
            } else {
                batch.remove(handle, key).unwrap();
                state[*keyspace].remove(key.as_bytes());
            }
        }
        batch.commit(durability).unwrap();
        self.history.push(state);
        self.log_ends.push(self.log_end());
    }

    fn remove_range(&mut self, keyspace: usize, start: &str, end: &str, durability: Durability) {
        let mut batch = self.db.batch();
        batch.remove_range(&self.keyspaces[keyspace], start..end).unwrap();
        batch.commit(durability).unwrap();
        let mut state = self.history.last().expect("the first state is empty").clone();
        let range = start.as_bytes()..end.as_bytes();
        state[keyspace].retain(|key, _| !range.contains(&&**key));
        self.history.push(state);
        self.log_ends.push(self.log_end());
    }

    /// Returns the end of the log.
    fn log_end(&self) -> LogPosition {
        let files = written(&self.fs);
        let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
        logs.map(|(name, bytes)| (file_id(name), bytes.len() as u64)).max().expect("a log")
    }

    /// Writes a table in the last level and one in level 0, for both keyspaces. Blocks of the first
    /// have the same length, so that they can be swapped.
    fn tables(&mut self) {
        for at in 0..16 {
            let (key, value) = (format!("k{at:02}"), self.noise(250));
            self.write(&[(0, &key, Some(value))], Durability::OsBuffer);
        }
        for at in 0..6 {
            let (key, value) = (format!("u{at:02}"), self.noise(250));
            self.write(&[(1, &key, Some(value))], Durability::OsBuffer);
        }
        self.db.compact().unwrap();
        for at in (0..16).step_by(3) {
            let value = self.text(90);
            let user = (1, &*format!("u{:02}", at / 3), (at % 2 == 0).then(|| value.clone()));
            self.write(&[(0, &format!("k{at:02}"), Some(value)), user], Durability::OsBuffer);
        }
        self.write(&[(0, "k04", None), (0, "k05", None)], Durability::OsBuffer);
        self.db.flush().unwrap();
        self.flushed = self.log_end();
    }

    /// Writes log records: many below a synced mark, some after it.
    fn logs(&mut self) {
        let (first, _) = self.log_end();
        for at in 0.. {
            let disk = if at % 4 == 1 { Durability::Disk } else { Durability::OsBuffer };
            let (key, value) = (format!("k{:02}", at * 5 % 20), self.noise(300));
            match at % 3 {
                0 => self.write(&[(0, &key, Some(value))], disk),
                1 => self.write(&[(1, &key, Some(value)), (0, "k07", None)], disk),
                _ => self.write(&[(0, &key, None), (1, &key, None)], disk),
            }
            if self.log_end().0 > first {
                break;
            }
        }
        for (at, durability) in
            [Durability::OsBuffer, Durability::Disk, Durability::OsBuffer, Durability::OsBuffer]
                .into_iter()
                .enumerate()
        {
            let value = self.text(40);
            self.write(
                &[(0, "k01", Some(value)), (1, &format!("v{at}"), Some(vec![]))],
                durability,
            );
        }
    }

    fn end(self, end: End) -> Sample {
        let Self { fs, db, keyspaces, history, log_ends, flushed, .. } = self;
        let open = Some((db, keyspaces)).filter(|_| end == End::PowerCut);
        let files = written(&fs);
        drop(open);
        Sample { files, history, log_ends, flushed }
    }

    /// Returns incompressible bytes.
    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut next = || {
            // A linear congruential generator; constants of Knuth's MMIX.
            let state = self.random.wrapping_mul(6_364_136_223_846_793_005);
            self.random = state.wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// Returns compressible bytes.
    fn text(&mut self, bytes: usize) -> Vec<u8> {
        let number = self.history.len().to_string();
        number.bytes().cycle().take(bytes).collect()
    }
}

#[test]
fn sample_store_has_every_feature() {
    for end in [End::PowerCut, End::Closed] {
        let sample = sample(end);
        assert_eq!(sample.names("", ".sst").len(), 4, "{end:?}: tables");
        assert_eq!(sample.names("", ".log").len(), 2, "{end:?}: logs");
        assert_eq!(sample.names("MANIFEST-", "").len(), 1, "{end:?}: manifests");
        assert!(sample.files.contains_key("CURRENT") && sample.files.contains_key("LOCK"));
        let files = if sample.files.contains_key("CLOSED") { 10 } else { 9 };
        assert_eq!(files == 10, end == End::Closed);
        assert_eq!(sample.files.len(), files, "{end:?}: {:?} in {STORE_DIR}", sample.files.keys());
        let bytes: usize = sample.files.values().map(bytes::Bytes::len).sum();
        assert!(bytes < 32 << 10, "{end:?}: {bytes} bytes are too many to damage each");
        let rebuilt = rebuilt_filters(end);
        // Filters of keys and of prefixes.
        assert_eq!(rebuilt.names("", ".filter").len(), 2 * 4, "{end:?}: filters");
    }
}
