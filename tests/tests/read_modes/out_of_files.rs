//! A process without free file descriptors.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use sievedb::{Db, Durability, KeyspaceOptions, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};

const DIR_VARIABLE: &str = "SIEVE_OUT_OF_FILES_DIR";
const EMFILE: i32 = 24;
const TABLES: u32 = 60;

fn options() -> Options {
    Options::new().open_files_max(1000).keyspace(KeyspaceOptions::new().table_bytes(4 << 10))
}

/// Writes tables, reads them, and writes more.
fn use_store(db: &Db, before_the_end: impl FnOnce()) {
    for round in 0..TABLES {
        for key in 0..60_u32 {
            db.insert([round.to_be_bytes(), key.to_be_bytes()].concat(), [7; 100]).unwrap();
        }
    }
    db.compact().unwrap();
    assert!(db.stats().total().tables > 45, "{} tables", db.stats().total().tables);
    assert_eq!(db.iter().count(), 60 * TABLES as usize);
    before_the_end();
    db.insert("last", "").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    db.persist(Durability::Disk).unwrap();
    assert_eq!(db.stats().read_only, None);
    assert_eq!(db.iter().count(), 60 * TABLES as usize + 1);
}

#[test]
fn call_without_a_free_descriptor_is_retried() {
    for call in [Call::Create, Call::Open, Call::SyncDir, Call::List] {
        let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let fs = Arc::clone(&faults) as Arc<dyn Fs>;
        let db = options().fs(fs).worker_threads(0).open("db").unwrap();
        use_store(&db, || faults.inject(Fault::new(EMFILE, Times::Once).calls(&[call])));
        drop(db);
        let struck = faults.failures();
        assert_eq!(struck, usize::from(call != Call::List), "{call:?}");
    }
}

/// Runs in a separate process, whose descriptor limit is below that of the store.
#[test]
fn limited() {
    let Some(dir) = env::var_os(DIR_VARIABLE) else { return };
    let db = options().open(Path::new(&dir)).unwrap();
    use_store(&db, || ());
    drop(db);
    let db = options().open(Path::new(&dir)).unwrap();
    assert!(db.contains_key("last").unwrap());
}

#[test]
fn descriptor_limit_below_the_option_is_respected() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
    shell.args(["read_modes::out_of_files::limited", "--exact", "--nocapture"]);
    shell.env(DIR_VARIABLE, dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(shell.status().unwrap().success());
}
