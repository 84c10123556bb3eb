//! Memory maps: truncation of a table kills the process.

use std::{env, fs::OpenOptions, os::unix::process::ExitStatusExt as _, path::Path};

use sievedb::{KeyspaceOptions, Options, ReadMode};

use super::{DIR_VARIABLE, other_process};

const SIGBUS: i32 = 7;

/// Runs in a separate process, which is killed.
#[test]
#[expect(clippy::disallowed_methods, reason = "it damages a table")]
fn reader() {
    let Some(dir) = env::var_os(DIR_VARIABLE).filter(|_| env::var_os("SIEVE_MAP").is_some()) else {
        return;
    };
    let dir = Path::new(&dir);
    let keyspace = KeyspaceOptions::new().compression(sievedb::Compression::None);
    let options = Options::new().read_mode(ReadMode::Map).block_cache_bytes(0).keyspace(keyspace);
    let db = options.open(dir).unwrap();
    for key in 0..5_000_u32 {
        db.insert(key.to_be_bytes(), [7; 100]).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.iter().count(), 5_000);
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "sst") {
            OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
        }
    }
    let found = db.iter().count();
    panic!("the map of an empty file gave {found} entries");
}

#[test]
#[cfg(target_os = "linux")]
fn truncated_mapped_table_kills_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = other_process("processes::mapped::reader");
    reader.env(DIR_VARIABLE, dir.path()).env("SIEVE_MAP", "1");
    assert_eq!(reader.status().unwrap().signal(), Some(SIGBUS));
}
