//! A transaction against ordered maps: reads, iterators and savepoints see its own writes.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds as _},
};

use bytes::Bytes;
use sievedb::{Durability, Keyspace, Savepoint, Transaction};
use sievedb_tests::{rng::Rng, settings::seed};

use super::open;

type Entries = BTreeMap<Bytes, Bytes>;

const STEPS: usize = 4000;

fn key(rng: &mut Rng) -> Bytes {
    format!("{:02}", rng.below(40)).into()
}

fn bound(rng: &mut Rng) -> Bound<Bytes> {
    match rng.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(rng)),
        _ => Bound::Included(key(rng)),
    }
}

/// Compares a walk from both ends, in random order, up to a random length.
fn check_range(rng: &mut Rng, transaction: &Transaction, keyspace: &Keyspace, want: &Entries) {
    let bounds = (bound(rng), bound(rng));
    let mut want: Vec<_> = want.iter().filter(|(key, _)| bounds.contains(*key)).collect();
    let mut range = transaction.range(keyspace, bounds.clone());
    for _ in 0..rng.below(60) {
        let (got, want) = match rng.chance(1, 2) {
            true => (range.next(), (!want.is_empty()).then(|| want.remove(0))),
            false => (range.next_back(), want.pop()),
        };
        let got = got.transpose().expect("nothing fails");
        let want = want.map(|(key, value)| (key.clone(), value.clone()));
        assert_eq!(got, want, "{bounds:?}");
    }
}

#[test]
fn transaction_sees_its_own_writes_over_the_snapshot() {
    let mut rng = Rng::new(seed("transactions", 1));
    let db = open();
    let keyspaces = [db.default_keyspace().clone(), db.keyspace("other").expect("a keyspace")];
    let mut committed = [Entries::new(), Entries::new()];
    let mut transaction = db.begin();
    let mut seen = committed.clone();
    let mut savepoints: Vec<(Savepoint, [Entries; 2])> = Vec::new();
    let mut commits = 0;
    for step in 0..STEPS {
        let at = rng.below(2);
        let keyspace = &keyspaces[at];
        match rng.below(22) {
            0..=6 => {
                let (key, value) = (key(&mut rng), Bytes::from(format!("value {step:030}")));
                transaction.insert(keyspace, &key, &value).expect("it fits");
                seen[at].insert(key, value);
            }
            7..=9 => {
                let key = key(&mut rng);
                transaction.remove(keyspace, &key).expect("it fits");
                seen[at].remove(&key);
            }
            10 => {
                let key = key(&mut rng);
                let got = transaction.get(keyspace, &key).expect("nothing fails");
                assert_eq!(got.as_ref(), seen[at].get(&key));
                let locked = transaction.get_for_update(keyspace, &key).expect("nothing fails");
                assert_eq!(locked, got);
                assert_eq!(transaction.contains_key(keyspace, &key).ok(), Some(got.is_some()));
            }
            11 => {
                let keys: Vec<_> = (0..10).map(|_| key(&mut rng)).collect();
                let want: Vec<_> = keys.iter().map(|key| seen[at].get(key).cloned()).collect();
                let got = transaction.get_many(keyspace, &keys).expect("nothing fails");
                assert_eq!(got, want);
                let got = transaction.contains_many(keyspace, &keys).expect("nothing fails");
                assert!(got.into_iter().eq(want.iter().map(Option::is_some)));
            }
            12..=14 => check_range(&mut rng, &transaction, keyspace, &seen[at]),
            15 => savepoints.push((transaction.set_savepoint(), seen.clone())),
            16 if !savepoints.is_empty() => {
                savepoints.truncate(1 + rng.below(savepoints.len()));
                let (savepoint, then) = savepoints.last().expect("one is left");
                transaction.rollback_to(savepoint).expect("it is set");
                seen = then.clone();
            }
            17 if !savepoints.is_empty() => {
                // Later ones are released with it.
                let released = savepoints.split_off(rng.below(savepoints.len()));
                let (savepoint, _) = released.into_iter().next().expect("there is one");
                transaction.release(savepoint).expect("it is set");
            }
            18 if rng.chance(1, 6) => {
                if rng.chance(1, 3) {
                    transaction.rollback();
                } else {
                    transaction.commit(Durability::Memory).expect("nothing conflicts");
                    commits += 1;
                    committed = seen;
                }
                if rng.chance(1, 3) {
                    db.compact().expect("nothing fails");
                }
                for (keyspace, want) in keyspaces.iter().zip(&committed) {
                    let got: Result<Entries, _> = keyspace.iter().collect();
                    assert_eq!(&got.expect("nothing fails"), want);
                }
                transaction = db.begin();
                seen = committed.clone();
                savepoints.clear();
            }
            19 => {
                let bounds = (bound(&mut rng), bound(&mut rng));
                transaction.remove_range(keyspace, bounds.clone()).expect("it fits");
                seen[at].retain(|key, _| !bounds.contains(key));
            }
            20 => {
                let prefix = key(&mut rng).slice(..1);
                transaction.remove_prefix(keyspace, &prefix).expect("it fits");
                seen[at].retain(|key, _| !key.starts_with(&prefix));
            }
            // Keys, and ranges with a gap between each two.
            _ => assert!(transaction.len() <= 2 * (40 + 41)),
        }
    }
    assert!(commits > 5, "{commits} commits");
}

/// Ranges of a transaction take memory, and give it back.
#[test]
fn memory_of_removed_ranges_is_counted() {
    let mut rng = Rng::new(seed("memory of removed ranges", 1));
    let db = open();
    for _ in 0..20 {
        let mut transaction = db.begin();
        let mut before = Vec::new();
        for step in 0..60 {
            match rng.below(4) {
                0 => transaction.insert(&db, key(&mut rng), vec![0; step]).expect("it fits"),
                1 => before.push((transaction.set_savepoint(), transaction.bytes())),
                _ => {
                    let bounds = (bound(&mut rng), bound(&mut rng));
                    transaction.remove_range(&db, bounds).expect("it fits");
                }
            }
        }
        let full = transaction.bytes();
        for (savepoint, bytes) in before.iter().rev() {
            transaction.rollback_to(savepoint).expect("it is set");
            assert_eq!(transaction.bytes(), *bytes);
        }
        if let Some((first, _)) = before.into_iter().next() {
            transaction.release(first).expect("it is set");
        }
        transaction.remove_prefix(&db, "").expect("it fits");
        assert_eq!(transaction.len(), 1);
        assert!(transaction.bytes() > 0 && transaction.bytes() <= full.max(1000));
    }
}
