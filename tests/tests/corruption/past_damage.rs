//! How to get past a damaged block: ranges that seek behind it, and the recipe of `docs/tuning.md`.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sievedb::{Compression, Db, Error, Keyspace, KeyspaceOptions, Options, Result, fs::MemoryFs};

use super::sample::{FOLDER, disk, files};

const KEYS: u32 = 2_000;

fn open(fs: &Arc<MemoryFs>) -> Db {
    Options::new().fs(fs.clone()).worker_threads(0).open(FOLDER).unwrap()
}

fn number(key: &[u8]) -> u32 {
    u32::from_be_bytes(key.try_into().unwrap())
}

/// A disk with a store that has a keyspace `users` of one table, with a damaged block in the middle.
fn damaged() -> Arc<MemoryFs> {
    let fs = Arc::new(MemoryFs::new());
    let db = open(&fs);
    let options = KeyspaceOptions::new().block_bytes(1 << 10).compression(Compression::None);
    let users = db.keyspace_with("users", &options).unwrap();
    for key in 0..KEYS {
        users.insert(key.to_be_bytes(), [key as u8; 100]).unwrap();
    }
    users.flush().unwrap();
    drop((users, db));
    let mut files = files(&fs);
    let (_, table) = files.iter_mut().find(|(name, _)| name.ends_with(".sst")).unwrap();
    let mut bytes = table.to_vec();
    bytes[table.len() / 2] ^= 1;
    *table = bytes.into();
    disk(&files)
}

/// The keys of the damaged block.
fn lost(users: &Keyspace) -> Range<u32> {
    let lost: Vec<u32> = (0..KEYS).filter(|key| users.get(key.to_be_bytes()).is_err()).collect();
    let (first, last) = (*lost.first().unwrap(), *lost.last().unwrap());
    assert!(lost.iter().copied().eq(first..=last) && lost.len() < 20, "{lost:?}");
    first..last + 1
}

#[test]
fn a_seek_leads_past_a_damaged_block() {
    let db = open(&damaged());
    let users = db.keyspace("users").unwrap();
    let lost = lost(&users);
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

    // Into the block: the error again. Behind it: all the rest, by either end.
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

/// Copies what can be read but for what lies between two damaged blocks. Whether all was there.
fn copy(from: &Keyspace, to: &Keyspace) -> Result<bool> {
    Ok(copy_up_to_damage(from.iter(), to)? || copy_up_to_damage(from.iter().rev(), to)?)
}

fn copy_up_to_damage(
    entries: impl Iterator<Item = Result<(Bytes, Bytes)>>,
    to: &Keyspace,
) -> Result<bool> {
    for entry in entries {
        match entry {
            Ok((key, value)) => to.insert(key, value)?,
            Err(Error::Corrupt { .. }) => return Ok(false),
            Err(error) => return Err(error), // Nothing is damaged: to be tried again.
        }
    }
    Ok(true)
}

#[test]
fn what_can_be_read_is_copied_or_the_keyspace_dropped() {
    let fs = damaged();
    let db = open(&fs);
    let users = db.keyspace("users").unwrap();
    let lost = lost(&users);
    // Each flush is a run of level 0, until a compaction reads all of them.
    let write = |_| users.insert(0_u32.to_be_bytes(), "new").and_then(|()| users.flush()).err();
    let refused = (0..100).find_map(write).expect("a compaction reads the table");
    assert!(matches!(refused, Error::ReadOnly { .. } | Error::Corrupt { .. }), "{refused:?}");
    drop((users, db));

    for round in 0..2 {
        let db = open(&fs);
        let users = db.keyspace("users").unwrap();
        assert!(matches!(db.compact(), Err(Error::Corrupt { .. } | Error::ReadOnly { .. })));
        let error = db.insert("key", "value").unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "round {round}: {error:?}");
        assert!(error.to_string().contains("sieve verify"), "{error}");
        let report = db.verify().unwrap();
        assert!(report.problems.iter().all(|problem| problem.path.extension().is_some()));
        assert!(!report.is_good());

        let copied = open(&Arc::new(MemoryFs::new()));
        assert!(!copy(&users, &copied).unwrap());
        let found: Vec<u32> = copied.iter().map(|entry| number(&entry.unwrap().0)).collect();
        assert!(found.into_iter().eq((0..lost.start).chain(lost.end..KEYS)));
    }

    let db = open(&fs);
    assert!(db.drop_keyspace("users").unwrap());
    db.compact().unwrap();
    db.insert("key", "value").unwrap();
    assert!(db.verify().unwrap().is_good() && db.stats().read_only.is_none());
    drop(db);
    let db = open(&fs);
    assert_eq!(db.keyspaces(), ["default"]);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}
