//! Damage of encrypted files: an error, a repair, or the right answer.

use std::{collections::BTreeMap, sync::Arc};

use sievedb::{Bytes, Db, Durability, Error, OlderValues, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    enumerate::{on_two_threads, verdict},
    rng::mix,
    settings::{STORE_DIR, seed},
};

use super::{encrypted, on};

type Entries = BTreeMap<Bytes, Bytes>;

/// Returns a store with tables, filters, log and manifest, its content, and the content before the
/// writes that nothing vouches for.
fn sample() -> (Arc<MemoryFs>, Entries) {
    let disk = Arc::new(MemoryFs::new());
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    for round in 0..3_u8 {
        for number in 0..30_u8 {
            db.insert([number, round % 2, 7], vec![number ^ round; 150]).unwrap();
        }
        db.flush().unwrap();
    }
    for number in 0..10_u8 {
        let mut batch = db.batch();
        batch.insert(&db, [number, 9, 9], [number; 90]).unwrap();
        batch.commit(Durability::Disk).unwrap();
    }
    let entries = db.iter().map(Result::unwrap).collect();
    // A clean close vouches for everything.
    drop(db);
    (disk, entries)
}

/// Compares all that can be read with `want`.
fn compare(db: &Db, want: &Entries) -> Result<(), String> {
    for (key, value) in want {
        match db.get(key) {
            Ok(found) if found.as_ref() == Some(value) => {}
            Ok(found) => return Err(format!("{key:?} is {found:?}")),
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(format!("{key:?}: {error:?}")),
        }
    }
    for entry in db.iter() {
        match entry {
            Ok((key, value)) if want.get(&key) == Some(&value) => {}
            Ok((key, _)) => return Err(format!("the scan returns {key:?}")),
            Err(Error::Corrupt { .. }) => return Ok(()),
            Err(error) => return Err(format!("scan: {error:?}")),
        }
    }
    Ok(())
}

/// Opens and repairs a store with a damaged file.
fn check(
    files: &BTreeMap<Arc<str>, Bytes>,
    (path, bytes): (&str, Vec<u8>),
    want: &Entries,
) -> Result<bool, String> {
    let disk = Arc::new(MemoryFs::new());
    for (path, bytes) in files {
        disk.create_dir(std::path::Path::new(STORE_DIR)).unwrap();
        disk.create(std::path::Path::new(&**path)).unwrap().append(bytes).unwrap();
    }
    disk.replace(path, bytes).unwrap();
    disk.settle();
    let opened = encrypted(on(&disk)).read_only(true).open(STORE_DIR);
    let refused = opened.is_err();
    match opened {
        Ok(db) => compare(&db, want)?,
        Err(Error::Corrupt { .. } | Error::NewerRelease { .. }) => {}
        Err(error) => return Err(format!("{error:?}")),
    }
    if refused {
        let repaired = encrypted(on(&disk)).repair(STORE_DIR, "data/new", OlderValues::LeaveOut);
        match repaired {
            Ok(_) | Err(Error::Corrupt { .. } | Error::NewerRelease { .. }) => {}
            Err(error) => return Err(format!("repair: {error:?}")),
        }
        if repaired.is_ok() {
            let db = encrypted(on(&disk)).open("data/new").unwrap();
            for (key, value) in db.iter().map(Result::unwrap) {
                if want.get(&key) != Some(&value) {
                    return Err(format!("the repaired store has {key:?}: {value:?}"));
                }
            }
        }
    }
    Ok(refused)
}

#[test]
fn no_damage_leads_to_a_wrong_answer() {
    let seed = seed("damage of encrypted stores", 1);
    let (disk, want) = sample();
    let files: BTreeMap<_, _> =
        disk.contents().into_iter().filter(|(path, _)| !path.ends_with("LOCK")).collect();
    let mut cases = Vec::new();
    for (path, bytes) in &files {
        for at in 0..bytes.len().min(200).max(bytes.len() / 7) {
            // Every byte of the beginning, then some.
            let at =
                if at < 200 { at } else { (mix(seed ^ at as u64) % bytes.len() as u64) as usize };
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << (mix(seed + at as u64) % 8);
            cases.push((path.clone(), format!("flipped at {at}"), damaged));
        }
        for at in (0..bytes.len()).step_by(97) {
            cases.push((path.clone(), format!("cut at {at}"), bytes[..at].to_vec()));
        }
        // The same file of the same kind, from elsewhere in the store.
        let kind = path.rsplit_once('.').map(|it| it.1);
        for (other, bytes) in files.iter().filter(|(other, _)| {
            *other != path && kind.is_some() && other.rsplit_once('.').map(|it| it.1) == kind
        }) {
            cases.push((path.clone(), format!("replaced by {other}"), bytes.to_vec()));
        }
    }
    let results = on_two_threads(&cases, |(path, what, bytes)| {
        check(&files, (path, bytes.clone()), &want)
            .map_err(|error| format!("{path} {what}: {error}"))
    });
    let refused = verdict("damage of encrypted stores", "not opened", results);
    assert!(refused > 0 && cases.len() > 1000, "{} cases, {refused} not opened", cases.len());
}
