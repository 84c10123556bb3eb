//! Stores are refused without their keys, before anything is changed.

use std::sync::Arc;

use sievedb::{Error, OlderValues, Options, ReadMode, RootKey, StaticKeys};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{encrypted, keys, on};

fn disk_with(options: impl Fn(&Arc<MemoryFs>) -> Options) -> Arc<MemoryFs> {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    for number in 0..200_u32 {
        db.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    db.insert("logged", "value").unwrap();
    disk
}

#[test]
fn encrypted_store_opens_with_its_keys_and_reads_what_was_written() {
    let disk = disk_with(|disk| encrypted(on(disk)));
    for options in [encrypted(on(&disk)), encrypted(on(&disk)).read_only(true)] {
        let db = options.open(STORE_DIR).unwrap();
        assert_eq!(db.iter().count(), 201);
        assert_eq!(db.get("logged").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(db.verify().unwrap().is_good());
    }
    let report = encrypted(on(&disk)).verify(STORE_DIR, |_| ()).unwrap();
    assert!(report.is_good(), "{report}");
    let formats = encrypted(on(&disk)).formats(STORE_DIR).unwrap();
    assert!(formats.unreadable.is_empty() && formats.readable.len() == 1, "{formats:?}");
    let db = encrypted(on(&disk)).open(STORE_DIR).unwrap();
    assert!(db.checkpoint("data/copy").unwrap().files_linked > 0);
    drop(db);
    let copy = encrypted(on(&disk)).open("data/copy").unwrap();
    assert_eq!(copy.iter().count(), 201);
    drop(copy);
    let refused = small_options(on(&disk)).open("data/copy");
    assert!(matches!(refused, Err(Error::Encrypted { .. })), "{refused:?}");
    let report = encrypted(on(&disk)).repair(STORE_DIR, "data/new", OlderValues::LeaveOut);
    assert!(report.unwrap().lost.is_empty());
    let repaired = encrypted(on(&disk)).open("data/new").unwrap();
    assert_eq!(repaired.iter().count(), 201);
}

#[test]
fn wrong_missing_and_needless_keys_are_refused_by_name() {
    let sealed = disk_with(|disk| encrypted(on(disk)));
    let plain = disk_with(|disk| small_options(on(disk)));
    let other = || Arc::new(StaticKeys::new(1, RootKey::new([9; 32])));
    let missing = || Arc::new(StaticKeys::new(4, RootKey::new([1; 32])));
    type Case = (&'static str, Arc<MemoryFs>, Options, fn(&Error) -> bool);
    let cases: [Case; 4] = [
        ("no key", sealed.clone(), small_options(on(&sealed)), |error| {
            matches!(error, Error::Encrypted { .. })
        }),
        ("wrong key", sealed.clone(), small_options(on(&sealed)).encryption(other()), |error| {
            matches!(error, Error::WrongKey { key_id: 1, .. })
        }),
        ("missing", sealed.clone(), small_options(on(&sealed)).encryption(missing()), |error| {
            matches!(error, Error::NoKey { key_id: 1, .. })
        }),
        ("plain", plain.clone(), encrypted(on(&plain)), |error| {
            matches!(error, Error::NotEncrypted { .. })
        }),
    ];
    for (name, disk, options, expected) in cases {
        let before = disk.contents();
        let calls: [(&str, Option<Error>); 5] = [
            ("open", options.clone().open(STORE_DIR).err()),
            ("read-only", options.clone().read_only(true).open(STORE_DIR).err()),
            ("verify", options.verify(STORE_DIR, |_| ()).err()),
            ("formats", options.formats(STORE_DIR).err()),
            ("repair", options.repair(STORE_DIR, "data/new", OlderValues::LeaveOut).err()),
        ];
        for (call, error) in calls {
            let error = error.unwrap_or_else(|| panic!("{name}: {call} succeeds"));
            assert!(expected(&error), "{name}: {call}: {error:?}");
        }
        let changed: Vec<_> = disk
            .contents()
            .into_iter()
            .filter(|(path, bytes)| !path.ends_with("LOCK") && before.get(path) != Some(bytes))
            .collect();
        assert!(
            changed.is_empty(),
            "{name}: {:?}",
            changed.iter().map(|it| &it.0).collect::<Vec<_>>()
        );
    }
}

#[test]
fn maps_and_statistics_files_are_refused() {
    let disk = Arc::new(MemoryFs::new());
    let interval = std::time::Duration::from_secs(1);
    for (name, options) in [
        ("read_mode", encrypted(on(&disk)).read_mode(ReadMode::Map)),
        ("stats_file_interval", encrypted(on(&disk)).stats_file_interval(interval)),
    ] {
        match options.open(STORE_DIR) {
            Err(Error::InvalidOption { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn new_files_use_the_newest_key_and_old_ones_stay_readable() {
    let disk = disk_with(|disk| encrypted(on(disk)));
    let options = || small_options(on(&disk)).encryption(keys(3));
    let db = options().open(STORE_DIR).unwrap();
    db.insert("later", "value").unwrap();
    db.flush().unwrap();
    drop(db);
    let db = options().open(STORE_DIR).unwrap();
    assert_eq!(db.iter().count(), 202);
    drop(db);
    let refused = encrypted(on(&disk)).open(STORE_DIR);
    assert!(matches!(refused, Err(Error::NoKey { key_id: 3, .. })), "{refused:?}");
}
