//! A follower in another process than its writer, which is killed by SIGKILL at random.

use std::{env, path::Path, thread, time::Duration};

use sievedb::{
    Db, Durability, Options,
    clock::{Clock as _, SystemClock},
};
use sievedb_tests::{
    rng::mix,
    settings::{from_env, report, seed, small_keyspace},
};

use super::{DIR_VARIABLE, other_process};

const SLOTS: u64 = 40;

fn options() -> Options {
    let options = Options::new().keyspace(small_keyspace()).worker_threads(2);
    options.log_segment_bytes(16 << 10).log_bytes_max(64 << 10)
}

fn newest(value: Option<bytes::Bytes>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

/// The process to kill: batch `n` stores `n` as `last` and under one of the slots, in two
/// keyspaces.
#[test]
fn followed_writer() {
    let dir = env::var_os(DIR_VARIABLE).filter(|_| env::var_os("SIEVE_FOLLOWED").is_some());
    let Some(dir) = dir else { return };
    let db = options().open(dir).expect("a kill must not damage a store");
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name).unwrap());
    let first = newest(keyspaces[0].get("last").unwrap()) + 1;
    for number in first.. {
        let mut batch = db.batch();
        for keyspace in &keyspaces {
            let mut value = number.to_le_bytes().to_vec();
            value.resize(8 + (mix(number) % 300) as usize, 0);
            batch.insert(keyspace, "last", &value).unwrap();
            batch.insert(keyspace, format!("{}", number % SLOTS), &value).unwrap();
        }
        let levels = [Durability::Memory, Durability::OsBuffer, Durability::OsBuffer];
        batch.commit(levels[mix(number) as usize % 3]).unwrap();
        if mix(number).is_multiple_of(5_000) {
            db.compact().unwrap();
        }
    }
}

/// Checks that the follower shows all batches up to one number, and returns it.
fn check(follower: &Db) -> u64 {
    let snapshot = follower.snapshot();
    let spaces = ["a", "b"].map(|name| {
        let keyspace = follower.open_keyspace(name).unwrap();
        snapshot.keyspace(keyspace).unwrap()
    });
    let last = newest(spaces[0].get("last").unwrap());
    for space in &spaces {
        assert_eq!(newest(space.get("last").unwrap()), last, "half of a batch");
        for slot in 0..SLOTS {
            let want = (1..=last).rev().find(|number| number % SLOTS == slot).unwrap_or(0);
            assert_eq!(newest(space.get(slot.to_string()).unwrap()), want, "slot {slot} at {last}");
        }
    }
    last
}

#[test]
fn follower_sees_prefixes_of_killed_writers() {
    let (seed, kills) = (seed("followed processes", 1), from_env("SIEVE_KILLS", 12));
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    for name in ["a", "b"] {
        drop(db.keyspace(name).unwrap());
    }
    db.close().unwrap();
    let follower = options().follow(true).open(dir.path()).unwrap();
    let (mut last, mut states, mut kill) = (0, 0, 0);
    // On a busy machine, writers may be killed before their first batch.
    while kill < kills || (last <= 100 && kill < 50 * kills) {
        let mut writer = other_process("processes::followed::followed_writer");
        writer.env(DIR_VARIABLE, dir.path()).env("SIEVE_FOLLOWED", "1");
        let mut writer = writer.spawn().unwrap();
        let (clock, end) = (SystemClock::new(), Duration::from_millis(30 + mix(seed ^ kill) % 300));
        while clock.now() < end {
            follower.refresh().unwrap();
            let seen = check(&follower);
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
            states += 1;
            thread::sleep(Duration::from_micros(mix(states) % 3_000));
        }
        writer.kill().unwrap();
        let ended = writer.wait().unwrap();
        assert_eq!(ended.code(), None, "kill {kill}: the writer ended by itself");
        follower.refresh().unwrap();
        last = check(&follower);
        let fresh = options().follow(true).open(Path::new(dir.path())).unwrap();
        assert_eq!(check(&fresh), last, "a new follower sees the same");
        kill += 1;
    }
    report(&format!("followed processes: {kill} kills, {last} batches, {states} states"));
    assert!(last > 100, "only {last} batches");
}
