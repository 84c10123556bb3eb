//! Random stores with and without prefix filters return equal results.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb::{Db, PrefixExtractor, Snapshot};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{rng::Rng, settings};

use super::{collect, extractors, open, sum};

/// Returns a key of one to four parts from a few words.
fn key(lots: &mut Rng) -> Vec<u8> {
    let words: [&[u8]; 9] =
        [b"a", b"b", b"bb", b"user", b"x\xff", b"\xff", b"\xff\xff", b"", b"\0"];
    let parts = 1 + lots.below(4);
    let mut key = words[lots.below(words.len())].to_vec();
    for _ in 1..parts {
        key.push(b'/');
        key.extend_from_slice(words[lots.below(words.len())]);
    }
    if lots.chance(1, 2) {
        key.extend_from_slice(format!("{:02}", lots.below(60)).as_bytes());
    }
    key
}

/// Two stores with the same writes, and snapshots of both at equal points in time.
struct Pair {
    dbs: [Db; 2],
    snapshots: Vec<[Snapshot; 2]>,
    writes: u64,
}

impl Pair {
    fn write(&mut self, lots: &mut Rng) {
        let key = key(lots);
        self.writes += 1;
        let is_put = lots.chance(2, 3);
        for db in &self.dbs {
            if is_put {
                db.insert(&key, self.writes.to_be_bytes()).unwrap();
            } else {
                db.remove(&key).unwrap();
            }
        }
        match lots.below(400) {
            0 => self.dbs.iter().for_each(|db| db.compact().unwrap()),
            1..=9 => self.dbs.iter().for_each(|db| db.flush().unwrap()),
            10 | 11 => self.snapshots.push(self.dbs.each_ref().map(Db::snapshot)),
            12 if !self.snapshots.is_empty() => {
                let at = lots.below(self.snapshots.len());
                self.snapshots.swap_remove(at);
            }
            _ => {}
        }
    }

    /// Compares scans of both.
    fn compare(&self, lots: &mut Rng, name: &str) {
        let (start, end) = (bound(lots), bound(lots));
        // Many bounds are within one prefix.
        let end = match &start {
            Bound::Included(start) if lots.chance(1, 2) => {
                Bound::Excluded([start, &b"0"[..]].concat())
            }
            Bound::Included(start) if lots.chance(1, 3) => {
                let mut next = start.clone();
                if let Some(last) = next.last_mut() {
                    *last = last.saturating_add(1);
                }
                Bound::Excluded(next)
            }
            _ => end,
        };
        let mut prefix = key(lots);
        prefix.truncate(lots.below(prefix.len() + 1));
        let (by_prefix, reversed) = (lots.chance(1, 2), lots.chance(1, 2));
        let snapshots = lots.below(self.snapshots.len() + 1).checked_sub(1);
        let [with, without] = [0, 1].map(|at| -> Vec<(Bytes, Bytes)> {
            let bounds = (start.clone(), end.clone());
            let range = match (snapshots, by_prefix) {
                (None, true) => self.dbs[at].prefix(&prefix),
                (None, false) => self.dbs[at].range(bounds),
                (Some(snapshot), true) => self.snapshots[snapshot][at].prefix(&prefix),
                (Some(snapshot), false) => self.snapshots[snapshot][at].range(bounds),
            };
            if reversed { range.rev().map(Result::unwrap).collect() } else { collect(range) }
        });
        let what = if by_prefix { format!("{prefix:?}") } else { format!("{start:?} to {end:?}") };
        assert_eq!(with, without, "{name}: {what}, from the back: {reversed}");
    }
}

fn bound(lots: &mut Rng) -> Bound<Vec<u8>> {
    match lots.below(6) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(key(lots)),
        _ => Bound::Included(key(lots)),
    }
}

fn story(extractor: &PrefixExtractor, lots: &mut Rng, writes: usize) {
    let name = extractor.name();
    let dbs = [Some(extractor.clone()), None].map(|it| open(&Arc::new(MemoryFs::new()), it));
    let mut pair = Pair { dbs, snapshots: Vec::new(), writes: 0 };
    for write in 0..writes {
        pair.write(lots);
        if write > writes / 4 {
            pair.compare(lots, &name);
        }
    }
    let negatives = sum(&pair.dbs[0], |level| level.prefix_negatives);
    assert!(negatives > 0, "{name}: no filter ruled a table out");
    assert_eq!(sum(&pair.dbs[0], |level| level.prefix_unusable), 0, "{name}");
    assert_eq!(sum(&pair.dbs[1], |level| level.prefix_probes), 0, "{name}");
}

#[test]
fn prefix_filters_do_not_change_scans() {
    let mut lots = Rng::new(settings::seed("prefix filters", 42));
    let writes = if settings::from_env("SIEVE_LONG", 0) == 1 { 50_000 } else { 1_500 };
    for extractor in extractors() {
        story(&extractor, &mut lots, writes);
    }
}
