//! Reading past a damaged block: ranges that seek past it, and the procedure of
//! `docs/operations.md`.

use std::{ops::RangeBounds as _, sync::Arc};

use bytes::Bytes;
use sievedb::{
    Compression, Db, Error, Keyspace, KeyspaceOptions, Options, ReadOptions, Result, VerifyReport,
};
use sievedb_doubles::MemoryFs;

use super::sample::{STORE_DIR, disk, files};

const KEYS: u32 = 2_000;

fn open(fs: &Arc<MemoryFs>) -> Db {
    Options::new().fs(fs.clone()).worker_threads(0).open(STORE_DIR).unwrap()
}

fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key.try_into().unwrap())
}

/// The keyspace of a test, with small blocks.
fn users(db: &Db) -> Keyspace {
    let options = KeyspaceOptions::new().block_bytes(1 << 10).compression(Compression::None);
    db.keyspace_with("users", &options).unwrap()
}

/// Returns the disk with a damaged block at each of these sixths of the newest table.
fn damage(fs: &MemoryFs, sixths: &[usize]) -> Arc<MemoryFs> {
    let mut files = files(fs);
    let (_, table) = files.iter_mut().rfind(|(name, _)| name.ends_with(".sst")).unwrap();
    let mut bytes = table.to_vec();
    for sixth in sixths {
        bytes[table.len() * sixth / 6] ^= 1;
    }
    *table = bytes.into();
    disk(&files)
}

/// Returns a disk with a keyspace `users` of one table, with a damaged block at each of these
/// sixths.
fn damaged(sixths: &[usize]) -> Arc<MemoryFs> {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    let users = users(&db);
    for key in 0..KEYS {
        users.insert(key.to_be_bytes(), [key as u8; 100]).unwrap();
    }
    users.flush().unwrap();
    drop((users, db));
    damage(&fs, sixths)
}

/// Returns the keys of the damaged blocks.
fn lost(users: &Keyspace, blocks: usize) -> Vec<u32> {
    let lost: Vec<u32> = (0..KEYS).filter(|key| users.get(key.to_be_bytes()).is_err()).collect();
    let breaks = lost.windows(2).filter(|pair| pair[0] + 1 < pair[1]).count();
    assert!(breaks + 1 == blocks && lost.len() < 20 * blocks, "{lost:?}");
    lost
}

/// Returns whether a report lists this key of the keyspace `users` as lost.
fn names(report: &VerifyReport, key: u32) -> bool {
    let key = Bytes::copy_from_slice(&key.to_be_bytes());
    report.problems.iter().any(|problem| {
        assert_eq!(problem.keyspace.as_deref(), Some("users"), "{problem}");
        problem.keys.as_ref().is_some_and(|keys| keys.contains(&key))
    })
}

#[test]
fn seek_skips_a_damaged_block() {
    let db = open(&damaged(&[3]));
    let users = db.keyspace("users").unwrap();
    let lost = lost(&users, 1);
    let lost = lost[0]..lost[lost.len() - 1] + 1;
    let mut range = users.iter();
    let mut keys = Vec::new();
    let error = loop {
        match range.next().unwrap() {
            Ok((key, _)) => keys.push(number(&key)),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert!(keys.iter().copied().eq(0..lost.start), "{:?} came before {lost:?}", keys.last());
    assert!(range.next().is_none() && range.next_back().is_none(), "it is at its end");

    // A seek into the block repeats the error; a seek past it reads all other keys, in both
    // directions.
    for key in lost.clone() {
        range.seek(key.to_be_bytes());
        assert!(range.next().unwrap().is_err(), "{key}");
        range.seek_back(key.to_be_bytes());
        assert!(range.next_back_ref().is_err(), "{key}");
    }
    range.seek(lost.end.to_be_bytes());
    assert_eq!(number(&range.next_back().unwrap().unwrap().0), KEYS - 1);
    let rest: Vec<u32> = range.by_ref().map(|entry| number(&entry.unwrap().0)).collect();
    assert!(rest.into_iter().eq(lost.end..KEYS - 1));
    range.seek_back((lost.start - 1).to_be_bytes());
    assert_eq!(number(&range.next().unwrap().unwrap().0), 0);
    let rest: Vec<u32> = range.rev().map(|entry| number(&entry.unwrap().0)).collect();
    assert!(rest.into_iter().eq((1..lost.start).rev()));

    let mut keys = users.iter().keys();
    while keys.next_ref().is_ok_and(|key| key.is_some()) {}
    keys.seek(lost.end.to_be_bytes());
    assert_eq!(number(&keys.next().unwrap().unwrap()), lost.end);
}

/// Copies readable data. Returns the number of keys left out because their newest value may be
/// lost.
fn copy(from: &Keyspace, to: &Keyspace) -> Result<u64> {
    let past_damage = from.with_read_options(ReadOptions::new().skip_damaged(true));
    let mut left_out = 0;
    for key in past_damage.iter().keys() {
        let key = key?;
        match from.get(&key) {
            Ok(Some(value)) => to.insert(key, value)?,
            Ok(None) => {} // Removed meanwhile.
            Err(Error::Corrupt { .. }) => left_out += 1,
            Err(error) => return Err(error), // Nothing is damaged: to be tried again.
        }
    }
    Ok(left_out)
}

#[test]
fn readable_data_is_copied_or_the_keyspace_dropped() {
    let fs = damaged(&[2, 4]);
    let db = open(&fs);
    let users = db.keyspace("users").unwrap();
    let lost = lost(&users, 2);
    // Each flush is a run of level 0 until a compaction reads all of them.
    for _ in 0..100 {
        users.insert(0_u32.to_be_bytes(), "new").and_then(|()| users.flush()).unwrap();
    }
    assert_eq!(db.stats().tables_quarantined, 1, "a compaction reads the table");
    drop((users, db));

    for round in 0..2 {
        let db = open(&fs);
        let users = db.keyspace("users").unwrap();
        assert!(matches!(db.compact(), Err(Error::Corrupt { .. })), "round {round}");
        db.insert("key", "value").unwrap();
        let report = db.verify().unwrap();
        assert_eq!(report.problems.len(), 2, "one for each block: {report}");
        for key in 0..KEYS {
            assert_eq!(names(&report, key), lost.contains(&key), "{key}: {report}");
        }

        let copied = open(&Arc::new(MemoryFs::new()));
        assert_eq!(copy(&users, copied.default_keyspace()).unwrap(), 0);
        let found: Vec<u32> = copied.iter().map(|entry| number(&entry.unwrap().0)).collect();
        assert_eq!(found.len(), KEYS as usize - lost.len());
        assert!(found.into_iter().eq((0..KEYS).filter(|key| !lost.contains(key))));
    }

    let db = open(&fs);
    assert!(db.drop_keyspace("users").unwrap());
    db.compact().unwrap();
    db.insert("key", "value").unwrap();
    assert!(db.verify().unwrap().is_good() && db.stats().read_only.is_none());
    drop(db);
    let db = open(&fs);
    assert_eq!(db.keyspaces().unwrap(), ["default"]);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn older_value_does_not_replace_a_lost_one() {
    // The seed makes the false positives of filters reproducible.
    let fs = Arc::new(MemoryFs::with_seed(7));
    let db = open(&fs);
    let users = users(&db);
    for key in 0..KEYS {
        users.insert(key.to_be_bytes(), "old").unwrap();
    }
    users.flush().unwrap();
    for key in (0..KEYS).step_by(2) {
        match key % 8 {
            0 => users.remove(key.to_be_bytes()).unwrap(),
            _ => users.insert(key.to_be_bytes(), [7; 100]).unwrap(),
        }
    }
    users.flush().unwrap();
    drop((users, db));
    let db = open(&damage(&fs, &[3]));
    let users = db.keyspace("users").unwrap();
    let copied = open(&Arc::new(MemoryFs::new()));
    let left_out = copy(&users, copied.default_keyspace()).unwrap();
    let mut lost = Vec::new();
    for key in 0..KEYS {
        let found = copied.get(key.to_be_bytes()).unwrap();
        match users.get(key.to_be_bytes()) {
            Ok(value) => assert_eq!(found, value, "{key}"),
            Err(_) => {
                assert_eq!(found, None, "{key}");
                lost.push(key);
            }
        }
    }
    let replaced = lost.iter().filter(|&key| key % 2 == 0).count();
    assert!((5..20).contains(&replaced), "a block: {lost:?}");
    assert!(lost.len() - replaced <= 2, "others only where the filter errs: {lost:?}");
    assert_eq!(left_out as usize, lost.len());
    // A range past the damage has all other keys unchanged.
    let past = users.with_read_options(ReadOptions::new().skip_damaged(true));
    let mut found: Vec<_> = past.iter().map(Result::unwrap).collect();
    for key in &lost {
        let entry = found.iter().find(|(found, _)| number(found) == *key);
        assert_eq!(entry.unwrap().1, "old", "{key}");
    }
    found.reverse();
    assert!(past.iter().rev().map(Result::unwrap).eq(found));
    // The report includes the keys between those of the damaged block.
    let report = db.verify().unwrap();
    assert!(lost.iter().filter(|&key| key % 2 == 0).all(|&key| names(&report, key)), "{report}");
}
