//! Random short ranges: a keyspace with range filters equals one without.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb::{Keyspace, KeyspaceOptions, KeyspaceSnapshot, Snapshot, stats::LevelStats};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, from_env, report, seed, small_keyspace, small_options},
};

/// Default number of steps; `SIEVE_OPS` sets another one.
const STEPS: usize = 30_000;

type Entries = Vec<(Bytes, Bytes)>;

/// Returns one of few keys, with bytes that stress prefixes and padding.
fn key(lots: &mut Rng, prefix: &str) -> Vec<u8> {
    let common = *lots.pick(&[prefix.len(), prefix.len(), prefix.len().min(2), 0]);
    let mut key = prefix.as_bytes()[..common].to_vec();
    for _ in 0..*lots.pick(&[0, 1, 2, 3, 3, 8, 9]) {
        key.push(*lots.pick(&[0, 0, 1, 7, b'a', b'z', 0xfe, 0xff]));
    }
    // Mostly numbers close to each other.
    if lots.chance(3, 4) {
        key = prefix.as_bytes().to_vec();
        key.extend_from_slice(&(lots.below(4_000) as u64).to_be_bytes());
        key.truncate(key.len() - usize::from(lots.chance(1, 20)));
    }
    key
}

fn bound(lots: &mut Rng, key: Vec<u8>) -> Bound<Vec<u8>> {
    match lots.below(20) {
        0 => Bound::Unbounded,
        1..8 => Bound::Excluded(key),
        _ => Bound::Included(key),
    }
}

/// Returns a key slightly after this one, read as a number.
fn behind(lots: &mut Rng, key: &[u8]) -> Vec<u8> {
    let mut behind = key.to_vec();
    if let Some(last) = behind.last_mut() {
        *last = last.saturating_add(lots.below(6) as u8); // Below 6.
    }
    behind
}

/// A reader of two equal keyspaces.
enum Reader<'a> {
    Now(&'a Keyspace),
    Then(KeyspaceSnapshot),
}

impl Reader<'_> {
    fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>), is_reversed: bool) -> Entries {
        let range = match self {
            Self::Now(keyspace) => keyspace.range::<&[u8]>(bounds),
            Self::Then(snapshot) => snapshot.range::<&[u8]>(bounds),
        };
        let found: Result<Entries, _> =
            if is_reversed { range.rev().take(9).collect() } else { range.take(9).collect() };
        found.expect("the disk is good")
    }

    fn prefix(&self, prefix: &[u8]) -> Entries {
        let range = match self {
            Self::Now(keyspace) => keyspace.prefix(prefix),
            Self::Then(snapshot) => snapshot.prefix(prefix),
        };
        range.collect::<Result<_, _>>().expect("the disk is good")
    }
}

#[test]
fn range_filter_does_not_change_scans() {
    let seed = seed("range filter model", 1);
    let steps = from_env("SIEVE_OPS", STEPS);
    let mut lots = Rng::new(seed);
    let db = small_options(Arc::new(MemoryFs::new())).open(STORE_DIR).unwrap();
    let create = |name: &str, bits: f64| {
        let options: KeyspaceOptions = small_keyspace().range_filter_bits_per_key(bits);
        db.keyspace_with(name, &options).unwrap()
    };
    let stories = [("wide", 5.0), ("narrow", 12.0), ("narrower", 25.0)];
    let pairs =
        stories.map(|(name, bits)| (create(name, bits), create(&format!("{name}-plain"), 0.0)));
    let mut snapshots: Vec<Snapshot> = Vec::new();
    let (mut asked, mut empty) = (0, 0);
    for step in 0..steps {
        let (with, without) = lots.pick(&pairs);
        let prefix = *lots.pick(&["", "ab", "user:"]);
        let some_key = key(&mut lots, prefix);
        match lots.below(100) {
            0..30 => {
                let value = step.to_string();
                with.insert(&some_key, &value).unwrap();
                without.insert(&some_key, &value).unwrap();
            }
            30..45 => {
                with.remove(&some_key).unwrap();
                without.remove(&some_key).unwrap();
            }
            45 if lots.chance(1, 4) => {
                with.flush().unwrap();
                without.flush().unwrap();
            }
            46 if lots.chance(1, 20) => {
                with.compact().unwrap();
                without.compact().unwrap();
            }
            47 => {
                snapshots.truncate(3);
                snapshots.insert(0, db.snapshot());
            }
            kind => {
                let at = snapshots.get(lots.below(5)).filter(|_| kind % 2 == 0);
                let readers = [with, without].map(|keyspace| match at {
                    Some(snapshot) => Reader::Then(snapshot.keyspace(keyspace).unwrap()),
                    None => Reader::Now(keyspace),
                });
                if kind % 10 == 0 {
                    let [found, want] = readers.map(|reader| reader.prefix(&some_key));
                    assert_eq!(found, want, "step {step}: prefix {some_key:?}");
                    continue;
                }
                let end = behind(&mut lots, &some_key);
                let bounds = (bound(&mut lots, some_key), bound(&mut lots, end));
                let slices =
                    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
                let is_reversed = kind % 3 == 0;
                let [found, want] = readers.map(|reader| reader.range(slices, is_reversed));
                assert_eq!(found, want, "step {step}: {bounds:?}, reversed: {is_reversed}");
                asked += 1;
                empty += usize::from(want.is_empty());
            }
        }
    }
    let sum = |field: fn(&LevelStats) -> u64| -> u64 { db.stats().levels.iter().map(field).sum() };
    let (probes, negatives) = (sum(|it| it.range_probes), sum(|it| it.range_negatives));
    report(&format!(
        "range filter model: {asked} ranges, {empty} of them empty, {probes} filters asked, {negatives} \
         tables ruled out"
    ));
    if steps >= STEPS {
        assert!(empty > 1_000 && negatives > 1_000, "the test has become blind");
    }
}
