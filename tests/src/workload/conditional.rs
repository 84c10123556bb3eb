//! Workloads of conditional writes.

use bytes::Bytes;
use sievedb::Durability::OsBuffer;

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::Recorder,
};

fn put(key: &str, value: impl Into<Bytes>) -> Vec<Change> {
    let (key, value) = (key.to_owned().into(), value.into());
    vec![Change::Put { keyspace: DEFAULT.into(), key, value }]
}

fn remove(key: &str) -> Vec<Change> {
    vec![Change::Remove { keyspace: DEFAULT.into(), key: key.to_owned().into() }]
}

/// Swaps, updates and counters, of which every second one finds another value and writes nothing.
pub(super) fn swaps(r: &mut Recorder) {
    for round in 0..4_i64 {
        let key = key(round as usize % 2);
        let value = r.new_value(200);
        r.call(put(&key, value.clone()), OsBuffer, |db| {
            db.fetch_update(&key, |_| Some(value.clone())).map(drop)
        });
        r.call(Vec::new(), OsBuffer, |db| {
            let swapped = db.compare_and_set(&key, None, Some(b"lost"))?;
            assert!(swapped.is_err(), "the key has a value");
            Ok(())
        });
        r.insert_if_absent(DEFAULT, key.clone(), 30);
        let count = (round * 5).to_be_bytes().to_vec();
        r.call(put("count", count), OsBuffer, |db| {
            let before = db.fetch_add("count", if round == 0 { 0 } else { 5 })?;
            assert_eq!(before, (round - 1).max(0) * 5);
            Ok(())
        });
        if round == 2 {
            r.flush();
        }
    }
    r.reopen();
    r.call(put("count", 7_i64.to_be_bytes().to_vec()), OsBuffer, |db| {
        let (old, new) = (15_i64.to_be_bytes(), 7_i64.to_be_bytes());
        db.compare_and_set("count", Some(&old), Some(&new))?.expect("the count is known");
        Ok(())
    });
}

/// A queue: entries are taken from both ends, from memtables and tables.
pub(super) fn queue(r: &mut Recorder) {
    for number in 0..8 {
        r.insert(DEFAULT, key(number), 300);
        if number == 4 {
            r.flush();
        }
    }
    for number in 0..3 {
        let (first, last) = (key(number), key(7 - number));
        r.call(remove(&first), OsBuffer, |db| {
            assert_eq!(db.pop_first()?.expect("it is not empty").0, first);
            Ok(())
        });
        r.call(remove(&last), OsBuffer, |db| {
            assert_eq!(db.pop_last()?.expect("it is not empty").0, last);
            Ok(())
        });
        if number == 1 {
            r.compact();
        }
    }
    r.call(remove(&key(3)), OsBuffer, |db| db.take(key(3)).map(drop));
    r.call(remove(&key(4)), OsBuffer, |db| db.remove_if(key(4), |_| true).map(drop));
    r.call(Vec::new(), OsBuffer, |db| db.pop_first().map(|none| assert_eq!(none, None)));
    r.flush();
}
