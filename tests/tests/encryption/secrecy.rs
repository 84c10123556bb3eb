//! No file of a store contains what was written.

use std::{sync::Arc, time::Duration};

use sievedb::clock::ManualClock;
use sievedb::{
    BackupSet, ChangeRetention, Counter, Durability, HistoryLength, KeyspaceOptions, Options,
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use super::{keys, on};

const SECRETS: [&str; 5] = [
    "keyspace-secret",
    "key-of-a-customer",
    "value-of-a-customer",
    "range-end-secret",
    "renamed-secret",
];

/// Uses every feature that stores bytes of the application. Returns the names of the checked files.
fn write_everything(options: &Options, copy: &str, set: &BackupSet) {
    let db =
        options.clone().retain_changes(ChangeRetention::bytes(1 << 20)).open(STORE_DIR).unwrap();
    let named = small_keyspace().merge_operator(Arc::new(Counter));
    let named = named.keep_history(Some(HistoryLength::Sequences(1000)));
    let other = db.keyspace_with("keyspace-secret", &named).unwrap();
    let key = |number: usize| format!("key-of-a-customer-{number:04}");
    let value = |number: usize| format!("{number:04}-value-of-a-customer").repeat(4);
    for round in 0..3 {
        for number in 0..120 {
            let mut batch = db.batch();
            batch.insert(&db, key(number), value(number + round)).unwrap();
            batch.commit(Durability::OsBuffer).unwrap();
            other.merge(key(number), 1_i64.to_le_bytes()).unwrap();
        }
        db.insert_with_ttl("key-of-a-customer", "value-of-a-customer", Duration::from_secs(900))
            .unwrap();
        db.remove_range("key-of-a-customer-0100".."range-end-secret").unwrap();
        db.flush().unwrap();
        db.insert(key(round), value(round)).unwrap();
    }
    db.keyspace("an old name").unwrap();
    db.rename_keyspace("an old name", "renamed-secret").unwrap();
    db.compact().unwrap();
    db.insert("key-of-a-customer", "value-of-a-customer").unwrap();
    db.persist(Durability::Disk).unwrap();
    db.checkpoint(copy).unwrap();
    let mut archive = set.archive(&db).unwrap();
    archive.update().unwrap();
    for number in 0..40 {
        db.insert(key(number), value(number)).unwrap();
    }
    db.persist(Durability::Disk).unwrap();
    archive.update().unwrap();
}

/// Returns the files that contain 8 bytes of a secret.
fn found(disk: &MemoryFs) -> Vec<String> {
    let parts: Vec<&[u8]> = SECRETS.iter().flat_map(|it| it.as_bytes().windows(8)).collect();
    let has_part = |bytes: &[u8]| bytes.windows(8).any(|window| parts.contains(&window));
    let files = disk.contents();
    assert!(files.len() > 20, "only {} files", files.len());
    files.iter().filter(|(_, bytes)| has_part(bytes)).map(|(path, _)| path.to_string()).collect()
}

#[test]
fn no_file_contains_eight_bytes_of_a_key_a_value_or_a_name() {
    let keyspace: KeyspaceOptions = small_keyspace().range_filter_bits_per_key(8.0);
    let set = |disk: &Arc<MemoryFs>| {
        BackupSet::with_fs("data/set", on(disk), Arc::new(ManualClock::new()))
    };
    let disk = Arc::new(MemoryFs::new());
    let options = small_options(on(&disk)).keyspace(keyspace.clone()).encryption(keys(2));
    write_everything(&options, "data/copy", &set(&disk).encryption(keys(2)));
    assert_eq!(found(&disk), Vec::<String>::new());
    // The search finds them in a store without encryption.
    let disk = Arc::new(MemoryFs::new());
    write_everything(&small_options(on(&disk)).keyspace(keyspace), "data/copy", &set(&disk));
    let files = found(&disk);
    for kind in [".sst", ".log", "MANIFEST", "copy", "set/objects", "set/backups", "set/log"] {
        assert!(files.iter().any(|path| path.contains(kind)), "{kind}: {files:?}");
    }
}
