//! A writer that is killed by SIGKILL at random, many times.
//!
//! Step `n` of thread `t` depends on `t` and `n` only: a batch over two keyspaces, which also
//! stores `n`. So the stored number of the last step determines the expected contents.

#![expect(clippy::disallowed_methods, reason = "what was acknowledged is no file of a store")]

use std::{
    collections::BTreeMap, env, fs, io::Write as _, path::Path, sync::Arc, thread, time::Duration,
};

use sievedb::{Db, Durability, Keyspace, Options};
use sievedb_tests::{
    rng::mix,
    settings::{from_env, report, seed, small_keyspace},
};

use super::{DIR_VARIABLE, other_process};

const THREADS: u64 = 4;
const KEYS: u64 = 100;
/// Kills of a store before it is recreated: checks take longer with more steps.
const KILLS_EACH: u64 = 10;

struct Step {
    key: String,
    /// `None` removes the key.
    value: Option<Vec<u8>>,
    durability: Durability,
}

impl Step {
    fn of(thread: u64, number: u64) -> Self {
        let random = mix(mix(thread) ^ number);
        let durability = match random % 10 {
            0 => Durability::Disk,
            1 | 2 => Durability::Memory,
            _ => Durability::OsBuffer,
        };
        let mut value = number.to_le_bytes().to_vec();
        value.resize(8 + (random >> 16) as usize % 300, number as u8);
        let removes = (random >> 32).is_multiple_of(5);
        let key = format!("{thread}/{:03}", (random >> 40) % KEYS);
        Self { key, value: (!removes).then_some(value), durability }
    }
}

fn open(dir: &Path) -> (Db, [Keyspace; 2]) {
    let options = Options::new()
        .keyspace(small_keyspace())
        .log_segment_bytes(16 << 10)
        .log_bytes_max(64 << 10)
        .worker_threads(2);
    let db = options.open(dir.join("db")).expect("a kill must not damage a store");
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name).unwrap());
    (db, keyspaces)
}

/// Returns the last stored step of `thread`.
fn last_step(keyspace: &Keyspace, thread: u64) -> u64 {
    let stored = keyspace.get(format!("last/{thread}")).unwrap();
    stored.map_or(0, |number| u64::from_le_bytes(number[..].try_into().unwrap()))
}

/// The process to kill: appends a line to a file for each acknowledged step.
#[test]
fn writer() {
    let Some(dir) = env::var_os(DIR_VARIABLE).filter(|_| env::var_os("SIEVE_KILL").is_some())
    else {
        return;
    };
    let dir = Path::new(&dir);
    let (db, keyspaces) = open(dir);
    let lines = fs::File::options().append(true).create(true).open(dir.join("acknowledged"));
    let lines = Arc::new(lines.unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, keyspaces, lines) = (&db, &keyspaces, &lines);
            scope.spawn(move || {
                for number in last_step(&keyspaces[0], thread) + 1.. {
                    let step = Step::of(thread, number);
                    let mut batch = db.batch();
                    for keyspace in keyspaces {
                        match &step.value {
                            Some(value) => batch.insert(keyspace, &step.key, value).unwrap(),
                            None => batch.remove(keyspace, &step.key).unwrap(),
                        }
                        let last = format!("last/{thread}");
                        batch.insert(keyspace, last, number.to_le_bytes()).unwrap();
                    }
                    batch.commit(step.durability).unwrap();
                    if step.durability > Durability::Memory {
                        let line = format!("{thread} {number}\n");
                        lines.as_ref().write_all(line.as_bytes()).unwrap();
                    }
                }
            });
        }
        for round in 0.. {
            thread::sleep(Duration::from_millis(mix(round) % 20));
            if round % 3 == 0 { db.compact().unwrap() } else { db.flush().unwrap() }
        }
    });
}

/// Compares the store with the acknowledgements. Returns the number of stored steps.
fn check(dir: &Path) -> u64 {
    let lines = fs::read_to_string(dir.join("acknowledged")).unwrap_or_default();
    let acknowledged: BTreeMap<u64, u64> = lines
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(thread, number)| (thread.parse().unwrap(), number.parse().unwrap()))
        .collect();
    let (_db, keyspaces) = open(dir);
    let mut steps = 0;
    for thread in 0..THREADS {
        let last = last_step(&keyspaces[0], thread);
        let least = acknowledged.get(&thread).copied().unwrap_or(0);
        assert!(last >= least, "thread {thread}: {least} was acknowledged, {last} is there");
        let mut expected = BTreeMap::new();
        for Step { key, value, .. } in (1..=last).map(|number| Step::of(thread, number)) {
            match value {
                Some(value) => expected.insert(key, value),
                None => expected.remove(&key),
            };
        }
        for keyspace in &keyspaces {
            let name = keyspace.name();
            assert_eq!(
                last_step(keyspace, thread),
                last,
                "thread {thread}: half a batch in {name}"
            );
            let found = keyspace.prefix(format!("{thread}/")).map(|entry| {
                let (key, value) = entry.unwrap();
                (String::from_utf8(key.to_vec()).unwrap(), value.to_vec())
            });
            assert!(found.eq(expected.clone()), "thread {thread}: {name} after step {last}");
        }
        steps += last;
    }
    steps
}

#[test]
fn killed_writer_loses_no_acknowledged_write() {
    let seed = seed("killed processes", 1);
    let kills = from_env("SIEVE_KILLS", 30);
    let (mut dir, mut steps, mut kill) = (tempfile::tempdir().unwrap(), 0, 0);
    // On a busy machine, all writers of the last store may be killed before their first step.
    while kill < kills || (steps == 0 && kill < 50 * kills) {
        if kill < kills && kill % KILLS_EACH == 0 {
            dir = tempfile::tempdir().unwrap();
        }
        let mut writer = other_process("processes::killed::writer");
        writer.env(DIR_VARIABLE, dir.path()).env("SIEVE_KILL", "1");
        let mut writer = writer.spawn().unwrap();
        thread::sleep(Duration::from_millis(10 + mix(seed ^ kill) % 150));
        writer.kill().unwrap();
        let ended = writer.wait().unwrap();
        assert_eq!(ended.code(), None, "kill {kill}: the writer ended by itself");
        steps = check(dir.path());
        kill += 1;
    }
    report(&format!("killed processes: {kill} kills, {steps} steps in the last store"));
    assert!(steps > 0, "the writer got nothing done");
}
