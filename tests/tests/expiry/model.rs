//! Random calls beside a manual clock and a wall clock that jumps, compared with a model.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use sievedb::{Db, Snapshot, clock::Clock as _, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_options},
};

const CALLS: usize = 1_500;
const KEYS: usize = 40;
const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 3600 * 1000;

/// Values with their expiry, in milliseconds of the store clock.
type Entries = BTreeMap<String, (String, u64)>;

/// The store, and what it must contain.
struct Story {
    fs: Arc<MemoryFs>,
    clock: Arc<ManualClock>,
    db: Option<Db>,
    entries: Entries,
    /// The store clock when the store was opened, and the other clock then.
    opened: (u64, Duration),
    snapshots: Vec<(Snapshot, Entries, u64)>,
    lots: Rng,
    written: u64,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("it succeeds")
}

impl Story {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new());
        clock.set_unix_time(Duration::from_millis(TEN_YEARS_MS));
        let fs = Arc::new(MemoryFs::with_seed(seed));
        let (entries, opened, snapshots) = Default::default();
        let lots = Rng::new(seed);
        let mut story = Self { fs, clock, db: None, entries, opened, snapshots, lots, written: 0 };
        story.reopen();
        story
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it succeeds")
    }

    /// The definition of the store clock.
    fn now_ms(&self) -> u64 {
        self.opened.0 + milliseconds(self.clock.now() - self.opened.1)
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        let stored_ms = if self.db.is_some() { self.now_ms() } else { 0 };
        // A close records the clock.
        if let Some(db) = &self.db {
            db.flush().expect("it succeeds");
            db.insert("clock", "").expect("it succeeds");
            db.flush().expect("it succeeds");
            db.remove("clock").expect("it succeeds");
            db.flush().expect("it succeeds");
        }
        self.db = None;
        let now_ms = milliseconds(self.clock.unix_time());
        match self.lots.below(6) {
            0 => self.clock.set_unix_time(Duration::from_millis(now_ms + TEN_YEARS_MS)),
            1 => {
                self.clock
                    .set_unix_time(Duration::from_millis(now_ms.saturating_sub(TEN_YEARS_MS)));
            }
            2 => self.clock.set_unix_time(Duration::from_millis(now_ms + 500)),
            _ => {}
        }
        let options = small_options(Arc::clone(&self.fs) as _).clock(Arc::clone(&self.clock) as _);
        self.db = Some(options.open(STORE_DIR).expect("it succeeds"));
        let unix_ms = milliseconds(self.clock.unix_time());
        self.opened = (stored_ms.max(unix_ms), self.clock.now());
    }

    fn key(&mut self) -> String {
        format!("key{:02}", self.lots.below(KEYS))
    }

    fn value(&mut self) -> String {
        self.written += 1;
        format!("{} {}", self.written, "v".repeat(self.lots.below(60)))
    }

    fn step(&mut self) {
        let (key, value) = (self.key(), self.value());
        match self.lots.below(100) {
            0..20 => {
                self.db().insert(&key, &value).expect("it succeeds");
                self.entries.insert(key, (value, u64::MAX));
            }
            20..50 => {
                let ttl_ms = *self.lots.pick(&[0, 1, 30, 500, 5_000, 100_000, TEN_YEARS_MS / 2]);
                self.db()
                    .insert_with_ttl(&key, &value, Duration::from_millis(ttl_ms))
                    .expect("it succeeds");
                self.entries.insert(key, (value, self.now_ms() + ttl_ms));
            }
            50..55 => {
                let expiry_ms = self.now_ms() + self.lots.below(2_000) as u64;
                let time = SystemTime::UNIX_EPOCH + Duration::from_millis(expiry_ms);
                self.db().insert_expiring_at(&key, &value, time).expect("it succeeds");
                self.entries.insert(key, (value, expiry_ms));
            }
            55..57 => {
                let now_ms = self.now_ms();
                let old = self.entries.get(&key).filter(|(_, expiry_ms)| now_ms < *expiry_ms);
                let expiry_ms = old.map_or(u64::MAX, |(_, expiry_ms)| *expiry_ms);
                let change = |_: Option<&[u8]>| Some(value.clone());
                self.db().fetch_update(&key, change).expect("it succeeds");
                self.entries.insert(key, (value, expiry_ms));
            }
            57..60 => {
                self.db().remove(&key).expect("it succeeds");
                self.entries.remove(&key);
            }
            60..64 => {
                let is_absent = !visible(&self.entries, self.now_ms()).contains_key(&key);
                let inserted = self.db().insert_if_absent(&key, &value).expect("it succeeds");
                assert_eq!(inserted, is_absent, "{key}");
                if inserted {
                    self.entries.insert(key, (value, u64::MAX));
                }
            }
            64..74 => {
                let by_ms = *self.lots.pick(&[1, 29, 400, 6_000]);
                self.clock.advance(Duration::from_millis(by_ms));
            }
            74 => self.clock.set_unix_time(Duration::from_millis(7)),
            75..80 if self.snapshots.len() < 3 => {
                let snapshot = self.db().snapshot();
                self.snapshots.push((snapshot, self.entries.clone(), self.now_ms()));
            }
            75..80 => drop(self.snapshots.swap_remove(self.lots.below(3))),
            80..86 => self.db().flush().expect("it succeeds"),
            86..89 => self.db().compact().expect("it succeeds"),
            89..91 => self.db().wait_for_background().expect("it succeeds"),
            91..93 => self.reopen(),
            _ => self.check(),
        }
        self.check_key();
    }

    fn check_key(&mut self) {
        let key = self.key();
        let want = visible(&self.entries, self.now_ms()).get(&key).cloned();
        let got = self.db().get(&key).expect("it succeeds");
        assert_eq!(
            got.as_deref(),
            want.as_deref().map(str::as_bytes),
            "{key} at {}",
            self.now_ms()
        );
    }

    fn check(&self) {
        let want = visible(&self.entries, self.now_ms());
        let up = self.db().iter().map(text).collect::<Vec<_>>();
        assert_eq!(up, want.clone().into_iter().collect::<Vec<_>>());
        let down = self.db().iter().rev().map(text).collect::<Vec<_>>();
        assert!(down.into_iter().rev().eq(up.iter().cloned()));
        let keys: Vec<_> = (0..KEYS).map(|number| format!("key{number:02}")).collect();
        let many = self.db().get_many(&keys).expect("it succeeds");
        for (key, found) in keys.iter().zip(many) {
            assert_eq!(found.as_deref(), want.get(key).map(String::as_bytes), "{key}");
        }
        for (snapshot, entries, clock_ms) in &self.snapshots {
            let want = visible(entries, *clock_ms);
            assert_eq!(snapshot.iter().map(text).collect::<BTreeMap<_, _>>(), want);
            for key in &keys {
                let found = snapshot.get(key).expect("it succeeds");
                assert_eq!(found.as_deref(), want.get(key).map(String::as_bytes), "{key}");
            }
        }
    }
}

fn visible(entries: &Entries, now_ms: u64) -> BTreeMap<String, String> {
    let alive = entries.iter().filter(|(_, (_, expiry_ms))| now_ms < *expiry_ms);
    alive.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

fn text(entry: sievedb::Result<(sievedb::Bytes, sievedb::Bytes)>) -> (String, String) {
    let (key, value) = entry.expect("it succeeds");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it succeeds");
    (text(&key), text(&value))
}

#[test]
fn random_calls_agree_with_the_model_whatever_the_clocks_do() {
    let first = seed("expiry", 1);
    for seed in first..first + 4 {
        let mut story = Story::new(seed);
        for _ in 0..CALLS {
            story.step();
        }
        story.check();
        let report = story.db().verify().expect("it succeeds");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}
