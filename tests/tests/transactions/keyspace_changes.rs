//! Transactions on several threads beside clears, renames, drops and creations of keyspaces,
//! merges, range deletes and snapshots of the present and the past.
//!
//! Each transaction writes one value to the same key of two keyspaces, or removes both. Each of
//! them may be cleared by itself. So at any point in time both values are equal, or one is missing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{
    Counter, Db, Durability::OsBuffer, Error, HistoryLength, Keyspace, KeyspaceSnapshot, Options,
    Range, Snapshot,
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    rng::Rng,
    settings::{STORE_DIR, seed, small_keyspace, small_options},
};

const KEYS: usize = 12;
const CALLS: usize = 1000;
const WRITERS: usize = 3;
const COUNTS: usize = 2;

fn options(fs: &Arc<MemoryFs>) -> Options {
    small_options(Arc::clone(fs) as _).worker_threads(2)
}

fn key(number: usize) -> String {
    format!("key{number:02}")
}

struct Attack {
    db: Db,
    left: Keyspace,
    right: Keyspace,
    counts: Keyspace,
    counted: AtomicU64,
    is_over: AtomicBool,
}

impl Attack {
    fn new(fs: &Arc<MemoryFs>) -> Self {
        let db = options(fs).open(STORE_DIR).unwrap();
        let history = HistoryLength::Sequences(200);
        let create = |name| {
            let options = small_keyspace().keep_history(history);
            db.keyspace_with(name, &options).unwrap()
        };
        let (left, right) = (create("left"), create("right"));
        let counter = small_keyspace().merge_operator(Arc::new(Counter));
        let counts = db.keyspace_with("counts", &counter).unwrap();
        let (counted, is_over) = Default::default();
        Self { db, left, right, counts, counted, is_over }
    }

    /// Writes or removes keys of both keyspaces in transactions.
    fn write(&self, lots: &mut Rng, writer: usize) {
        for call in 0..CALLS {
            let (first, second) = (lots.below(KEYS), lots.below(KEYS));
            let (from, to) = (key(first.min(second)), key(first.max(second)));
            let value = format!("{writer} {call} {}", "v".repeat(lots.below(60)));
            let lot = lots.below(10);
            let done = self.db.transaction(|tx| {
                for side in [&self.left, &self.right] {
                    match lot {
                        0 => tx.remove(side, &from)?,
                        1 => tx.remove_range(side, from.as_str()..to.as_str())?,
                        2 => {
                            tx.insert(side, &from, &value)?;
                            tx.insert(side, &to, &value)?;
                        }
                        _ => {
                            let found = tx.get(&self.left, &to)?;
                            drop(found);
                            tx.insert(side, &from, &value)?;
                        }
                    }
                }
                Ok(())
            });
            // After many conflicts a transaction aborts.
            assert!(matches!(done, Ok(()) | Err(Error::Conflict { .. })), "{done:?}");
        }
    }

    fn count(&self) {
        for _ in 0..CALLS {
            self.counts.merge("count", 1_u64.to_be_bytes()).unwrap();
            self.counted.fetch_add(1, SeqCst);
        }
    }

    /// Clears one of the keyspaces, renames the other, and creates and drops a third.
    fn change(&self, lots: &mut Rng) {
        let mut round = 0_u64;
        while !self.is_over.load(SeqCst) {
            round += 1;
            let (one, other) = match lots.below(2) {
                0 => (&self.left, &self.right),
                _ => (&self.right, &self.left),
            };
            if round.is_multiple_of(4) {
                one.clear().unwrap();
            }
            let (before, after) = (other.name(), format!("renamed {round}"));
            self.db.rename_keyspace(&before, &after).unwrap();
            let passing = self.db.keyspace("passing").unwrap();
            passing.insert("key", round.to_be_bytes()).unwrap();
            let tx = self.db.transaction(|tx| tx.insert(&passing, "other", "value"));
            tx.unwrap();
            assert!(self.db.drop_keyspace("passing").unwrap());
            let refused = self.db.transaction(|tx| tx.insert(&passing, "key", "value"));
            assert!(matches!(refused, Err(Error::KeyspaceDropped { .. })), "{refused:?}");
            let refused = passing.merge("key", "value");
            let is_refused = |error: &Error| {
                matches!(error, Error::KeyspaceDropped { .. } | Error::NoMergeOperator { .. })
            };
            assert!(refused.as_ref().is_err_and(is_refused), "{refused:?}");
            one.flush().unwrap();
        }
    }

    /// Compares both keyspaces at many points in time.
    fn read(&self, lots: &mut Rng) {
        let mut compared = 0;
        while !self.is_over.load(SeqCst) || compared == 0 {
            compared += 1;
            let counted = self.counted.load(SeqCst);
            let snapshot = self.db.snapshot();
            self.compare(&snapshot);
            let found = snapshot.keyspace(&self.counts).unwrap().get("count").unwrap();
            let found = found.map_or(0, |count| u64::from_be_bytes(count[..].try_into().unwrap()));
            assert!(found >= counted, "{found} of {counted} counts");
            let back = lots.below(300) as u64;
            let at = snapshot.sequence().saturating_sub(back);
            if let (Ok(left), Ok(right)) = (self.left.snapshot_at(at), self.right.snapshot_at(at)) {
                // Within a write only one side may have it.
                check_twice(&left);
                check_twice(&right);
            }
        }
    }

    fn compare(&self, snapshot: &Snapshot) {
        let side = |keyspace: &Keyspace| snapshot.keyspace(keyspace).unwrap();
        let (left, right) = (side(&self.left), side(&self.right));
        check_twice(&left);
        for number in 0..KEYS {
            let key = key(number);
            let (left, right) = (left.get(&key).unwrap(), right.get(&key).unwrap());
            let is_consistent = left.is_none() || right.is_none() || left == right;
            assert!(is_consistent, "{key} at {}: {left:?} and {right:?}", snapshot.sequence());
        }
    }
}

/// A snapshot is read the same forwards, backwards, and key by key.
fn check_twice(snapshot: &KeyspaceSnapshot) {
    let entries = |range: Range| range.map(|entry| entry.unwrap());
    let forwards: Vec<_> = entries(snapshot.iter()).collect();
    let mut backwards: Vec<_> = snapshot.iter().rev().map(|entry| entry.unwrap()).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    for (key, value) in forwards {
        assert_eq!(snapshot.get(&key).unwrap(), Some(value));
    }
}

#[test]
fn transactions_beside_changes_of_keyspaces_stay_atomic() {
    let seed = seed("transactions beside changes of keyspaces", 1);
    let fs = Arc::new(MemoryFs::with_seed(seed));
    let attack = Attack::new(&fs);
    let lots = |number: u64| Rng::new(seed.wrapping_mul(100) + number);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (attack, mut lots) = (&attack, lots(writer as u64));
                scope.spawn(move || attack.write(&mut lots, writer))
            })
            .collect();
        let counters: Vec<_> = (0..COUNTS).map(|_| scope.spawn(|| attack.count())).collect();
        scope.spawn(|| attack.change(&mut lots(10)));
        scope.spawn(|| attack.read(&mut lots(11)));
        let ended = writers.into_iter().chain(counters).map(|it| it.join()).collect::<Vec<_>>();
        attack.is_over.store(true, SeqCst);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    attack.compare(&attack.db.snapshot());
    let wanted = (CALLS * COUNTS) as u64;
    let count = attack.counts.get("count").unwrap().unwrap();
    assert_eq!(u64::from_be_bytes(count[..].try_into().unwrap()), wanted);
    let report = attack.db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    attack.db.persist(OsBuffer).unwrap();
    let names = [&attack.left, &attack.right].map(|keyspace| keyspace.name());

    // A power cut at any operation leaves whole transactions.
    let mut lots = lots(20);
    for _ in 0..10 {
        let at = fs.operations() - lots.below(fs.operations().min(200));
        let loss = Loss::Random { seed: lots.number(), torn: true };
        let cut = Arc::new(fs.crash(at, &loss));
        let db = options(&cut).open(STORE_DIR).unwrap();
        let opened = names.each_ref().map(|name| db.open_keyspace(name));
        let [Ok(left), Ok(right)] = opened else { continue };
        for number in 0..KEYS {
            let key = key(number);
            let (left, right) = (left.get(&key).unwrap(), right.get(&key).unwrap());
            assert!(
                left.is_none() || right.is_none() || left == right,
                "{key}: {left:?}, {right:?}"
            );
        }
    }
}
