//! Every kind of read beside range deletes, compared with a model.

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Append, Db, KeyspaceOptions, Options, Snapshot, explain::ExplainedAnswer};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    rng::Rng,
    settings::{self, small_keyspace},
};

/// Keys of the model, and as many that are never written.
const KEYS: usize = 60;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of different lengths, some with equal first bytes.
fn key(number: usize) -> Vec<u8> {
    match number % 3 {
        0 => format!("k{:03}", number / 3).into_bytes(),
        1 => format!("key with a long prefix {:03}", number / 3).into_bytes(),
        _ => vec![(number / 3) as u8; 1 + number % 7],
    }
}

fn open(seed: u64) -> Db {
    let append = Arc::new(Append::with_separator(","));
    let keyspace: KeyspaceOptions = small_keyspace().merge_operator(append);
    let options = Options::new().fs(Arc::new(MemoryFs::with_seed(seed))).worker_threads(0);
    options.keyspace(keyspace).open("db").unwrap()
}

/// Reads of a store or of a snapshot.
macro_rules! check_reads {
    ($reader:expr, $model:expr, $rng:expr) => {{
        let (reader, model): (_, &Model) = ($reader, $model);
        let mut keys: Vec<_> = (0..2 * KEYS).map(key).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, $rng.below(at + 1));
        }
        keys.truncate(1 + $rng.below(2 * KEYS));
        let many = reader.get_many(&keys).unwrap();
        let contained = reader.contains_many(&keys).unwrap();
        for ((key, many), contained) in keys.iter().zip(many).zip(contained) {
            let want = model.get(key).map(|value| &value[..]);
            assert_eq!(reader.get(key).unwrap().as_deref(), want, "get {key:?}");
            assert_eq!(many.as_deref(), want, "get_many {key:?}");
            assert_eq!(contained, want.is_some(), "contains_many {key:?}");
            assert_eq!(reader.contains_key(key).unwrap(), want.is_some(), "contains {key:?}");
            assert!(reader.may_contain(key) || want.is_none(), "may_contain {key:?}");
            let answer = reader.explain(key).unwrap().answer;
            let explained = matches!(answer, ExplainedAnswer::Present { .. });
            assert_eq!(explained, want.is_some(), "explain {key:?}");
        }
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        let want: Vec<_> = model.iter().map(entry).collect();
        let read = |(key, value): (bytes::Bytes, bytes::Bytes)| (key.to_vec(), value.to_vec());
        let found: Vec<_> = reader.iter().map(|entry| read(entry.unwrap())).collect();
        assert_eq!(found, want, "forward");
        let mut found: Vec<_> = reader.iter().rev().map(|entry| read(entry.unwrap())).collect();
        found.reverse();
        assert_eq!(found, want, "backward");
    }};
}

/// A range of keys, some empty, some without an end.
fn remove_range(db: &Db, model: &mut Model, rng: &mut Rng) {
    let (from, to) = (key(rng.below(KEYS)), key(rng.below(KEYS)));
    if rng.chance(1, 20) {
        db.remove_range(&from[..]..).unwrap();
        model.retain(|key, _| *key < from);
    } else if rng.chance(1, 6) {
        let prefix = &from[..1 + rng.below(from.len())];
        db.remove_prefix(prefix).unwrap();
        model.retain(|key, _| !key.starts_with(prefix));
    } else {
        db.remove_range(&from[..]..&to[..]).unwrap();
        model.retain(|key, _| *key < from || *key >= to);
    }
}

fn run(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let db = open(seed);
    let mut model = Model::new();
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    // From few range deletes at a time up to many: memtables search few of them in an array.
    let range_share = *rng.pick(&[1, 4, 30]);
    let maintenance = *rng.pick(&[2, 8, 20]);
    for step in 0..steps {
        if rng.chance(range_share, 100) {
            remove_range(&db, &mut model, &mut rng);
        } else {
            let (key, value) = (key(rng.below(KEYS)), format!("{step}").into_bytes());
            match rng.below(10) {
                0 | 1 => {
                    db.remove(&key).unwrap();
                    model.remove(&key);
                }
                2 | 3 => {
                    db.merge(&key, &value).unwrap();
                    let merged = model.entry(key).or_default();
                    if !merged.is_empty() {
                        merged.push(b',');
                    }
                    merged.extend_from_slice(&value);
                }
                _ => {
                    db.insert(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        if rng.chance(maintenance, 200) {
            db.flush().unwrap();
        }
        if rng.chance(maintenance, 1000) {
            db.compact().unwrap();
        }
        if rng.chance(1, 15) {
            snapshots.push((db.snapshot(), model.clone()));
            if snapshots.len() > 3 {
                snapshots.swap_remove(rng.below(4));
            }
        }
        if rng.chance(1, 10) {
            check_reads!(&db, &model, rng);
            for (snapshot, model) in &snapshots {
                check_reads!(snapshot, model, rng);
            }
        }
    }
}

#[test]
fn reads_agree_with_a_model() {
    let first = settings::seed("range deletes", 1);
    let rounds = if settings::from_env("SIEVE_LONG", 0) > 0 { 1000 } else { 12 };
    for seed in first..first + rounds {
        run(seed, 400);
    }
}
