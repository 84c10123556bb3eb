//! Ranges that move to the present.

use std::{
    collections::BTreeMap,
    ops::Bound::{self, Excluded, Included, Unbounded},
    sync::Arc,
    time::Duration,
};

use sievedb::{Db, Error, clock::ManualClock};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_options},
};

use super::ends::new_store;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A range as the documentation describes it.
struct Wanted {
    /// At the creation, or at the last refresh.
    entries: Entries,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ends: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    is_used_up: bool,
}

impl Wanted {
    fn step(&mut self, from_back: bool) -> Option<(Vec<u8>, Vec<u8>)> {
        let is_within = |key: &Vec<u8>| {
            let is_above = match &self.ends.0 {
                Included(low) => key >= low,
                Excluded(low) => key > low,
                Unbounded => true,
            };
            is_above
                && match &self.ends.1 {
                    Included(high) => key <= high,
                    Excluded(high) => key < high,
                    Unbounded => true,
                }
        };
        let mut left = self.entries.iter().filter(|(key, _)| is_within(key));
        let found = if from_back { left.next_back() } else { left.next() };
        let found = found.filter(|_| !self.is_used_up);
        let Some((key, value)) = found.map(|(key, value)| (key.clone(), value.clone())) else {
            self.is_used_up = true;
            return None;
        };
        let end = if from_back { &mut self.ends.1 } else { &mut self.ends.0 };
        *end = Excluded(key.clone());
        Some((key, value))
    }

    /// Repositions an end at a key within the bounds.
    fn seek(&mut self, key: &[u8], from_back: bool) {
        self.ends = self.bounds.clone();
        let end = if from_back { &mut self.ends.1 } else { &mut self.ends.0 };
        *end = Included(key.to_vec());
        self.is_used_up = false;
    }
}

fn change(db: &Db, entries: &mut Entries, rng: &mut Rng) {
    for _ in 0..rng.below(12) {
        let key = format!("{:02}", rng.below(60)).into_bytes();
        if rng.chance(1, 3) {
            db.remove(&key).expect("there is room");
            entries.remove(&key);
        } else {
            let value = format!("{}", rng.below(1000)).into_bytes();
            db.insert(&key, &value).expect("there is room");
            entries.insert(key, value);
        }
    }
    match rng.below(12) {
        0 => db.flush().expect("there is room"),
        1 => db.compact().expect("there is room"),
        _ => {}
    }
}

/// Both ends keep their positions, whatever happens to the keys there.
#[test]
fn a_refreshed_range_shows_the_present_from_the_same_positions() {
    let mut rng = Rng::new(seed("refreshed ranges", 17));
    let (mut steps, mut refreshed) = (0, 0);
    for _ in 0..60 {
        let db = new_store();
        let mut entries = Entries::new();
        change(&db, &mut entries, &mut rng);
        let low = [Unbounded, Included(b"10".to_vec()), Excluded(b"10".to_vec())];
        let high = [Unbounded, Included(b"50".to_vec()), Excluded(b"50".to_vec())];
        let bounds = (rng.pick(&low).clone(), rng.pick(&high).clone());
        let mut range = db.range(bounds.clone());
        let ends = bounds.clone();
        let mut wanted = Wanted { entries: entries.clone(), bounds, ends, is_used_up: false };
        for _ in 0..60 {
            match rng.below(10) {
                0 | 1 => change(&db, &mut entries, &mut rng),
                2 => {
                    range.refresh().unwrap();
                    wanted.entries.clone_from(&entries);
                    refreshed += 1;
                }
                3 => {
                    let (key, from_back) = (format!("{:02}", 11 + rng.below(38)), rng.chance(1, 2));
                    if from_back {
                        range.seek_back(&key);
                    } else {
                        range.seek(&key);
                    }
                    wanted.seek(key.as_bytes(), from_back);
                }
                _ => {
                    let from_back = rng.chance(1, 3);
                    let got = if from_back { range.next_back() } else { range.next() };
                    let got = got.transpose().unwrap();
                    let got = got.map(|(key, value)| (key.to_vec(), value.to_vec()));
                    assert_eq!(got, wanted.step(from_back), "from back: {from_back}");
                    steps += 1;
                }
            }
        }
    }
    assert!(steps > 1000 && refreshed > 100, "{steps} steps, {refreshed} refreshed");
}

#[test]
fn a_range_of_a_snapshot_stays_there() {
    let db = new_store();
    db.insert("a", "").unwrap();
    let snapshot = db.snapshot();
    let mut range = snapshot.iter();
    db.insert("b", "").unwrap();
    range.refresh().unwrap();
    assert_eq!(range.keys().collect::<Result<Vec<_>, _>>().unwrap(), ["a"]);
}

#[test]
fn a_range_of_a_dropped_keyspace_stays_as_it_was() {
    let db = new_store();
    let gone = db.keyspace("gone").unwrap();
    gone.insert("a", "").unwrap();
    gone.insert("b", "").unwrap();
    let mut keys = gone.iter().keys();
    assert_eq!(keys.next().unwrap().unwrap(), "a");
    db.drop_keyspace("gone").unwrap();
    let error = keys.refresh().unwrap_err();
    assert!(matches!(error, Error::KeyspaceDropped { .. }), "{error:?}");
    assert_eq!(keys.next().unwrap().unwrap(), "b");
    let mut refused = gone.iter();
    let error = refused.refresh().unwrap_err();
    assert!(matches!(error, Error::KeyspaceDropped { .. }), "{error:?}");
    assert!(refused.next().unwrap().is_err(), "the range still yields its error");
}

#[test]
fn a_refreshed_range_reads_the_clock_again() {
    let clock = Arc::new(ManualClock::new());
    let options = small_options(Arc::new(MemoryFs::new())).clock(Arc::clone(&clock) as _);
    let db = options.open(STORE_DIR).expect("a new store");
    for (key, seconds) in [("a", 1), ("b", 5), ("c", 9)] {
        db.insert_with_ttl(key, "", Duration::from_secs(seconds)).expect("it succeeds");
    }
    let (mut range, mut left) = (db.iter(), db.iter().keys());
    clock.advance(Duration::from_secs(5));
    assert_eq!(range.next().expect("an entry").expect("it succeeds").0, "a", "its clock is fixed");
    db.flush().expect("it succeeds");
    range.refresh().expect("it succeeds");
    left.refresh().expect("it succeeds");
    assert_eq!(range.next().expect("an entry").expect("it succeeds").0, "c");
    assert_eq!(left.collect::<Result<Vec<_>, _>>().expect("it succeeds"), ["c"]);
}
