//! Workloads of values that expire.
//!
//! What a crash leaves must not depend on the clock: values expire long after the test, or have
//! expired when they are written.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sievedb::{Durability::Disk, Durability::OsBuffer, TimeToLive};

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::Recorder,
};

const AGES: Duration = Duration::from_secs(1 << 33);

fn far() -> SystemTime {
    SystemTime::UNIX_EPOCH + AGES
}

fn put(key: &str, value: Bytes) -> Change {
    Change::Put { keyspace: DEFAULT.into(), key: key.to_owned().into(), value }
}

fn remove(key: &str) -> Change {
    Change::Remove { keyspace: DEFAULT.into(), key: key.to_owned().into() }
}

/// Values that expire over values and tombstones, in memtables and on all levels.
pub(super) fn values(r: &mut Recorder) {
    for round in 0..4 {
        for number in 0..4 {
            let (key, value) = (key(number), r.new_value(250));
            if (number + round) % 3 == 0 {
                // It has expired, and hides what was there.
                r.call(vec![remove(&key)], OsBuffer, |db| {
                    db.insert_with_ttl(&key, &value, Duration::ZERO)
                });
            } else {
                r.call(vec![put(&key, value.clone())], OsBuffer, |db| {
                    db.insert_with_ttl(&key, &value, AGES)
                });
            }
        }
        match round {
            0 => r.flush(),
            1 => r.compact(),
            2 => r.reopen(),
            _ => r.persist(Disk),
        }
    }
    let (a, b) = (r.new_value(40), r.new_value(40));
    r.call(vec![put("a", a.clone()), remove("key0001"), put("b", b.clone())], Disk, |db| {
        let mut batch = db.batch();
        batch.insert_expiring_at(db, "a", &a, far())?;
        batch.insert_expiring_at(db, "key0001", &a, SystemTime::UNIX_EPOCH)?;
        batch.insert(db, "b", &b)?;
        batch.commit(Disk).map(drop)
    });
    r.compact();
}

/// Expiries are set, moved, removed, and let pass.
pub(super) fn changes(r: &mut Recorder) {
    for number in 0..4 {
        let (key, value) = (key(number), r.new_value(100));
        r.call(vec![put(&key, value.clone())], OsBuffer, |db| db.insert(&key, &value));
        r.call(vec![put(&key, value.clone())], OsBuffer, |db| {
            db.expire_at(&key, far()).map(|found| assert!(found))
        });
        if number % 2 == 0 {
            r.flush();
        }
        if number % 4 < 2 {
            r.call(vec![put(&key, value)], OsBuffer, |db| {
                assert!(db.persist_key(&key)?);
                assert_eq!(db.ttl(&key)?, Some(TimeToLive::Unlimited));
                Ok(())
            });
        } else {
            r.call(vec![remove(&key)], OsBuffer, |db| {
                db.expire_at(&key, SystemTime::UNIX_EPOCH).map(|found| assert!(found))
            });
        }
    }
    r.compact();
    r.reopen();
    r.call(Vec::new(), OsBuffer, |db| {
        db.persist_key(key(3)).map(|found| assert!(!found, "it has expired"))
    });
    r.insert_with(DEFAULT, key(3), 20, Disk);
}
