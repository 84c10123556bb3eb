//! A store is open once, in this process and on this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a process reports its result to another one")]

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Barrier, Mutex},
    thread,
    time::Duration,
};

use sievedb::{
    Db, Durability, Error, Options,
    clock::{Clock, ManualClock},
    fs::{FileLock, Fs, RealFs},
};
use sievedb_doubles::MemoryFs;

/// Environment variable with the store that the other process opens.
const DIR_VARIABLE: &str = "SIEVE_LOCKING_DIR";
/// Printed by the other process when it has opened the store.
const OPENED: &str = "the other process has the store";
const REFUSED: &str = "the other process was refused";

fn is_locked(outcome: &Result<Db, Error>, dir: &Path) -> bool {
    matches!(outcome, Err(Error::Locked { path, .. }) if path == dir)
}

#[test]
fn second_open_in_this_process_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let stores: [(&str, Arc<dyn Fs>, &Path); 2] = [
        ("real", Arc::new(RealFs), temporary.path()),
        ("memory", Arc::new(MemoryFs::new()), Path::new("db")),
    ];
    for (name, fs, dir) in stores {
        let open = || {
            let options = Options::new().fs(Arc::clone(&fs)).clock(Arc::new(ManualClock::new()));
            options.worker_threads(0).open(dir)
        };
        let db = open().unwrap();
        db.insert("k", "v").unwrap();
        assert!(is_locked(&open(), dir), "{name}: open");
        assert!(is_locked(&open(), dir), "{name}: a refused opening took the lock away");
        let handle = db.clone();
        drop(db);
        assert!(is_locked(&open(), dir), "{name}: a handle is left");
        let keyspace = handle.keyspace("users").unwrap();
        drop(handle);
        assert!(is_locked(&open(), dir), "{name}: a keyspace is left");
        let mut scan = keyspace.iter();
        drop(keyspace);
        assert!(is_locked(&open(), dir), "{name}: an iterator is left");
        assert!(scan.next().is_none());
        drop(scan);

        let db = open().unwrap();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]), "{name}");
        let (snapshot, mut batch) = (db.snapshot(), db.batch());
        batch.insert(&db, "never", "committed").unwrap();
        drop(db);
        assert!(is_locked(&open(), dir), "{name}: a snapshot and a batch are left");
        drop(snapshot);
        assert!(is_locked(&open(), dir), "{name}: a batch is left");
        drop(batch);
        open().unwrap();
    }
}

/// A clock whose sleep ends the lock of another process.
#[derive(Debug)]
struct Unlocking {
    clock: ManualClock,
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Clock for Unlocking {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn unix_time(&self) -> Duration {
        self.clock.unix_time()
    }

    fn sleep(&self, duration: Duration) {
        self.lock.lock().unwrap().take();
        self.clock.sleep(duration);
    }
}

#[test]
fn a_lock_of_a_moment_does_not_refuse_an_open() {
    let fs = Arc::new(MemoryFs::new());
    let options = || Options::new().fs(fs.clone()).worker_threads(0);
    options().open("db").unwrap();
    // `sieve stats --watch` looks whether the store is open.
    let lock = Mutex::new(Some(fs.lock_shared(Path::new("db/LOCK")).unwrap()));
    let clock = Arc::new(Unlocking { clock: ManualClock::new(), lock });
    options().clock(clock).open("db").unwrap();
}

/// Runs in another process: opens the store until its input ends.
#[test]
fn other_process() {
    let Some(dir) = env::var_os(DIR_VARIABLE) else { return };
    let db = match Db::open(&dir) {
        Ok(db) => db,
        Err(Error::Locked { .. }) => return say(REFUSED),
        Err(error) => panic!("{error:?}"),
    };
    let mut batch = db.batch();
    batch.insert(&db, "from", "elsewhere").unwrap();
    batch.commit(Durability::Disk).unwrap();
    say(OPENED);
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn say(line: &str) {
    // On its own line, after any output of the test harness.
    println!("\n{line}");
}

/// Starts [`other_process`]. Returns it with its message.
fn start_other(dir: &Path) -> (Child, String) {
    let mut other = Command::new(env::current_exe().unwrap())
        .args(["locking::other_process", "--exact", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(other.stdout.as_mut().unwrap()).lines();
    let said = lines.map(|line| line.unwrap()).find(|line| [OPENED, REFUSED].contains(&&**line));
    (other, said.expect("the other process reports its result"))
}

#[test]
fn second_open_in_another_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.insert("k", "v").unwrap();
    let (mut other, said) = start_other(dir.path());
    assert_eq!(said, REFUSED);
    assert!(other.wait().unwrap().success());
    db.insert("k", "w").unwrap();
    drop(db);

    let (mut other, said) = start_other(dir.path());
    assert_eq!(said, OPENED);
    assert!(is_locked(&Db::open(dir.path()), dir.path()), "held by the other process");
    // The end of its input makes it exit.
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"w"[..]));
    assert_eq!(db.get("from").unwrap().as_deref(), Some(&b"elsewhere"[..]));
}

#[test]
fn killed_process_leaves_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (mut other, said) = start_other(dir.path());
    assert_eq!(said, OPENED);
    assert!(is_locked(&Db::open(dir.path()), dir.path()));
    other.kill().unwrap();
    other.wait().unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(db.get("from").unwrap().as_deref(), Some(&b"elsewhere"[..]), "written as Disk");
}

/// All start together. A process that closes its store at once releases the lock for others that
/// saw an empty directory.
#[test]
fn n16_one_of_several_processes_creates_the_store() {
    const OPENERS: usize = 4;
    for round in 0..200 {
        let (fs, begin) = (Arc::new(MemoryFs::new()), Barrier::new(OPENERS));
        let open = &|number: usize| {
            begin.wait();
            let options = Options::new().fs(Arc::clone(&fs) as Arc<dyn Fs>).worker_threads(0);
            match options.create_new(true).open("db") {
                Ok(db) => {
                    db.insert("creator", number.to_string()).unwrap();
                    db.close().unwrap();
                    Some(number)
                }
                Err(Error::StoreExists { .. } | Error::Locked { .. }) => None,
                Err(error) => panic!("round {round}: {error}"),
            }
        };
        let creators: Vec<usize> = thread::scope(|scope| {
            let openers: Vec<_> = (0..OPENERS).map(|n| scope.spawn(move || open(n))).collect();
            openers.into_iter().filter_map(|opener| opener.join().unwrap()).collect()
        });
        let [creator] = creators[..] else { panic!("round {round}: created by {creators:?}") };
        let db = Options::new().fs(fs).worker_threads(0).open("db").unwrap();
        assert_eq!(db.get("creator").unwrap().unwrap(), creator.to_string().as_bytes());
    }
}
