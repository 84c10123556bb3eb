//! A process that changes its current directory while a store is open.

use std::{env, path::Path};

use sievedb::Db;

use super::{DIR_VARIABLE, other_process};

/// Runs in a separate process: all threads share the current directory.
#[test]
fn writer() {
    let Some(dir) = env::var_os(DIR_VARIABLE).filter(|_| env::var_os("SIEVE_MOVE").is_some())
    else {
        return;
    };
    env::set_current_dir(Path::new(&dir).join("before")).unwrap();
    let db = Db::open("db").unwrap();
    db.insert("first", "").unwrap();
    env::set_current_dir(Path::new(&dir).join("after")).unwrap();
    let other = Db::open("db").unwrap();
    for key in ["second", "third"] {
        db.insert(key, "").unwrap();
        db.flush().unwrap();
        other.insert(key, "other").unwrap();
    }
    db.compact().unwrap();
    assert!(Db::open("").is_err(), "an empty path is no directory");
}

/// All files of a store remain in the directory that its path named at the open.
#[test]
fn relative_path_is_resolved_once() {
    let dir = tempfile::tempdir().unwrap();
    let stores = ["before/db", "after/db"].map(|path| dir.path().join(path));
    for store in &stores {
        drop(Db::open(store).unwrap());
    }
    let mut writer = other_process("processes::moved::writer");
    writer.env(DIR_VARIABLE, dir.path()).env("SIEVE_MOVE", "1");
    assert!(writer.status().unwrap().success());
    let [before, after] = stores.map(|store| Db::open(store).unwrap());
    for (db, keys) in [(before, vec!["first", "second", "third"]), (after, vec!["second", "third"])]
    {
        let found: Vec<_> = db.iter().keys().map(|key| key.unwrap()).collect();
        assert_eq!(found, keys);
    }
}
