//! Failing calls of a follower's file system: a refresh fails as a whole, and the next one helps.

use std::sync::Arc;

use sievedb::{Db, Error, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::{
    check::guarded,
    enumerate::{on_two_threads, verdict},
    history::Universe,
    model::Model,
    observe::observe,
    settings::{STORE_DIR, small_options},
};

use super::following;

const EIO: i32 = 5;
const EMFILE: i32 = 24;

type Step = fn(Db, &Arc<MemoryFs>) -> Db;

/// Steps of the writer between two refreshes.
const STEPS: [(&str, Step); 6] = [
    ("inserts", |db, _| {
        db.insert("a", "2").unwrap();
        db.keyspace("other").unwrap().insert("a", "2").unwrap();
        db
    }),
    ("log rotation", |db, _| {
        for number in 0..8 {
            db.insert(format!("long{number}"), [7; 1500]).unwrap();
        }
        db
    }),
    ("flush", |db, _| {
        db.insert("a", "3").unwrap();
        db.flush().unwrap();
        db
    }),
    ("compaction", |db, _| {
        db.insert("b", "3").unwrap();
        db.compact().unwrap();
        db
    }),
    ("keyspaces", |db, _| {
        let new = db.keyspace("new").unwrap();
        new.insert("a", "1").unwrap();
        new.flush().unwrap();
        db.rename_keyspace("other", "renamed").unwrap();
        db.default_keyspace().clear().unwrap();
        db
    }),
    ("reopening", |db, disk| {
        db.insert("b", "4").unwrap();
        db.close().unwrap();
        let db = small_options(disk.clone()).open(STORE_DIR).unwrap();
        db.insert("c", "5").unwrap();
        db
    }),
];

fn contents(db: &Db) -> Result<Model, String> {
    observe(db, &Universe::new()).map_err(|error| error.to_string())
}

/// Fails the call `call` of a refresh after `step`. Returns whether there was one.
fn run(step: Step, call: usize, errno: i32, times: Times) -> Result<bool, String> {
    guarded(|| {
        let disk = Arc::new(MemoryFs::new());
        let writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
        writer.insert("a", "1").unwrap();
        writer.keyspace("other").unwrap().insert("a", "1").unwrap();
        writer.flush().unwrap();
        writer.insert("b", "1").unwrap();
        let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
        let follower = following(Arc::clone(&faults) as Arc<dyn Fs>).open(STORE_DIR).unwrap();
        let before = contents(&follower)?;
        let writer = step(writer, &disk);
        let after = contents(&writer)?;
        faults.inject(Fault::new(errno, times).after(call));
        let refreshed = follower.refresh();
        let struck = faults.failures() > 0;
        faults.heal();
        let want = match &refreshed {
            Ok(_) => &after,
            Err(Error::Io { .. } | Error::Corrupt { .. }) => &before,
            Err(error) => return Err(format!("an error of another kind: {error:?}")),
        };
        let found = contents(&follower)?;
        if found != *want {
            return Err(format!("{refreshed:?} shows\n{}", found.difference(want, 12)));
        }
        follower.refresh().map_err(|error| format!("the next refresh: {error:?}"))?;
        let found = contents(&follower)?;
        match found == after {
            true => Ok(struck),
            false => Err(format!("the next refresh shows\n{}", found.difference(&after, 12))),
        }
    })
}

#[test]
fn failed_refresh_changes_nothing_and_is_repeated() {
    let mut trials = Vec::new();
    for step in STEPS {
        for errno in [EIO, EMFILE] {
            trials.extend([Times::Once, Times::ForGood].map(|times| (step, errno, times)));
        }
    }
    let results = on_two_threads(&trials, |&((name, step), errno, times)| {
        for call in 0.. {
            match run(step, call, errno, times) {
                Ok(true) => {}
                Ok(false) => return Ok(call),
                Err(text) => {
                    return Err(format!("{name}, call {call} by {errno}, {times:?}: {text}"));
                }
            }
        }
        Ok(0)
    });
    let calls = verdict("faults of followers", "failed calls", results);
    assert!(calls > 100, "only {calls} calls failed");
}
