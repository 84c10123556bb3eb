//! Random calls in a keyspace with a history, compared with all states that it had.

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Append, Bytes, Db, HistoryLength, Keyspace, KeyspaceSnapshot};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_keyspace, small_options},
};

use super::assert_refused;

const CALLS: usize = 1_200;
const KEYS: usize = 16;

type State = BTreeMap<String, String>;

/// The store, and what it was at each sequence number.
struct Story {
    fs: Arc<MemoryFs>,
    db: Option<Db>,
    keyspace: Option<Keyspace>,
    lots: Rng,
    length: u64,
    /// The state after each write, by its sequence number.
    states: BTreeMap<u64, State>,
    /// The versions of each key, by sequence number.
    versions: BTreeMap<String, BTreeMap<u64, Option<String>>>,
    /// Versions before this sequence number may be missing.
    from: u64,
    snapshots: Vec<(KeyspaceSnapshot, State)>,
    written: u64,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut lots = Rng::new(seed);
        let length = *lots.pick(&[1, 5, 40, 200, 100_000]);
        let mut story = Self {
            fs: Arc::new(MemoryFs::with_seed(seed)),
            db: None,
            keyspace: None,
            lots,
            length,
            states: BTreeMap::from([(0, State::new())]),
            versions: BTreeMap::new(),
            from: 0,
            snapshots: Vec::new(),
            written: 0,
        };
        story.reopen();
        story
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        (self.keyspace, self.db) = (None, None);
        if self.lots.chance(1, 2) {
            // A kill: nothing is closed, and nothing is lost.
            self.fs = Arc::new(self.fs.copy());
        }
        let db = small_options(Arc::clone(&self.fs) as _).open(STORE_DIR).unwrap();
        let options = small_keyspace().merge_operator(Arc::new(Append::new()));
        let options = options.keep_history(HistoryLength::Sequences(self.length));
        self.keyspace = Some(db.keyspace_with("past", &options).unwrap());
        self.db = Some(db);
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self) -> &Keyspace {
        self.keyspace.as_ref().unwrap()
    }

    fn visible(&self) -> u64 {
        self.db().snapshot().sequence()
    }

    fn oldest(&self) -> u64 {
        self.visible().saturating_sub(self.length).max(self.from)
    }

    fn state(&self) -> State {
        self.states.last_key_value().unwrap().1.clone()
    }

    /// Notes what the last write did to these keys.
    fn note(&mut self, changes: impl IntoIterator<Item = (String, Option<String>)>) {
        let (sequence, mut state) = (self.visible(), self.state());
        for (key, value) in changes {
            match &value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(&key),
            };
            self.versions.entry(key).or_default().insert(sequence, value);
        }
        self.states.insert(sequence, state);
    }

    fn key(&mut self) -> String {
        format!("key{:02}", self.lots.below(KEYS))
    }

    fn step(&mut self) {
        self.written += 1;
        let key = self.key();
        let value = format!("{} {}", self.written, "v".repeat(self.lots.below(40)));
        match self.lots.below(100) {
            0..40 => {
                self.keyspace().insert(&key, &value).unwrap();
                self.note([(key, Some(value))]);
            }
            40..50 => {
                self.keyspace().remove(&key).unwrap();
                self.note([(key, None)]);
            }
            50..60 => {
                self.keyspace().merge(&key, &value).unwrap();
                let before = self.state().get(&key).cloned().unwrap_or_default();
                self.note([(key, Some(before + &value))]);
            }
            60..64 => {
                let end = self.key();
                if key < end {
                    self.keyspace().remove_range(key.as_str()..end.as_str()).unwrap();
                    let all = (0..KEYS).map(|number| format!("key{number:02}"));
                    let gone: Vec<_> = all.filter(|it| (&key..&end).contains(&it)).collect();
                    self.note(gone.into_iter().map(|key| (key, None)));
                }
            }
            64..70 => self.db().insert(&key, &value).unwrap(),
            70..76 => self.keyspace().flush().unwrap(),
            76..79 => self.keyspace().compact().unwrap(),
            79..81 => self.db().wait_for_background().unwrap(),
            81..84 => self.reopen(),
            84 if self.lots.chance(1, 4) => {
                self.keyspace().clear().unwrap();
                self.from = self.visible();
                let keys: Vec<_> = self.versions.keys().cloned().collect();
                self.note(keys.into_iter().map(|key| (key, None)));
                self.versions.clear();
            }
            85..88 => self.change_length(),
            88..92 if self.snapshots.len() < 3 => {
                let (snapshot, state) = self.past();
                self.snapshots.push((snapshot, state));
            }
            88..92 => drop(self.snapshots.swap_remove(self.lots.below(3))),
            _ => self.check(),
        }
        let (past, state) = self.past();
        let key = self.key();
        let found = past.get(&key).unwrap();
        let at = past.sequence();
        assert_eq!(found.as_deref(), state.get(&key).map(String::as_bytes), "{key} at {at}");
    }

    fn change_length(&mut self) {
        self.from = self.oldest();
        self.length = *self.lots.pick(&[1, 5, 40, 200, 100_000]);
        let length = HistoryLength::Sequences(self.length);
        let keyspace = self.keyspace();
        keyspace.set_options(keyspace.options().keep_history(length)).unwrap();
    }

    /// Returns a snapshot at a sequence number within the history, and its state.
    fn past(&mut self) -> (KeyspaceSnapshot, State) {
        let (oldest, visible) = (self.oldest(), self.visible());
        let at = oldest + self.lots.below((visible - oldest + 1) as usize) as u64;
        let snapshot = self.keyspace().snapshot_at(at).unwrap();
        assert_eq!(snapshot.sequence(), at);
        let state = self.states.range(..=at).next_back().unwrap().1.clone();
        (snapshot, state)
    }

    fn check(&mut self) {
        let (past, state) = self.past();
        check_snapshot(&past, &state);
        for (snapshot, state) in &self.snapshots {
            check_snapshot(snapshot, state);
        }
        let (oldest, visible) = (self.oldest(), self.visible());
        if oldest > 0 {
            assert_refused(self.keyspace().snapshot_at(oldest - 1), Some(oldest));
        }
        assert_refused(self.keyspace().snapshot_at(visible + 1), Some(oldest));
        let key = self.key();
        let mut want: Vec<(Option<u64>, Option<String>)> = Vec::new();
        if let Some(versions) = self.versions.get(&key) {
            let within = versions.range(oldest + 1..).rev();
            want.extend(within.map(|(sequence, value)| (Some(*sequence), value.clone())));
            let before = versions.range(..=oldest).next_back();
            let before = before.and_then(|(_, value)| value.clone());
            want.extend(before.map(|value| (None, Some(value))));
        }
        let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
        let found = self.keyspace().history(&key).unwrap().map(|version| version.unwrap());
        let found: Vec<_> = found.map(|it| (it.sequence, it.value.map(text))).collect();
        assert_eq!(found, want, "{key} from {oldest}");
    }
}

fn check_snapshot(snapshot: &KeyspaceSnapshot, want: &State) {
    let entry = |entry: sievedb::Result<(Bytes, Bytes)>| {
        let (key, value) = entry.unwrap();
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        (text(key), text(value))
    };
    let up: Vec<_> = snapshot.iter().map(entry).collect();
    assert!(up.iter().cloned().eq(want.clone()), "{up:?}, not {want:?}");
    let down: Vec<_> = snapshot.iter().rev().map(entry).collect();
    assert!(down.into_iter().rev().eq(up), "backward at {}", snapshot.sequence());
    for number in 0..KEYS {
        let key = format!("key{number:02}");
        let found = snapshot.get(&key).unwrap();
        assert_eq!(found.as_deref(), want.get(&key).map(String::as_bytes), "{key}");
    }
}

/// Whatever is flushed, compacted, killed and set, each point of the history is what it was.
#[test]
fn every_point_of_the_history_stays_as_it_was() {
    let first = seed("history", 1);
    for seed in first..first + 12 {
        let mut story = Story::new(seed);
        for _ in 0..CALLS {
            story.step();
        }
        story.check();
        let report = story.db().verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}
