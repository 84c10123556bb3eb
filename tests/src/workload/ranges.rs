//! Workloads of range deletes.

use std::ops::Bound;

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::Recorder,
};

fn fill(r: &mut Recorder, numbers: std::ops::Range<usize>, bytes: usize) {
    for number in numbers {
        r.insert(DEFAULT, key(number), bytes);
    }
}

fn removal(keyspace: &str, low: Bound<String>, high: Bound<String>) -> Change {
    let range = (low.map(Into::into), high.map(Into::into));
    Change::RemoveRange { keyspace: keyspace.into(), range }
}

/// Each flush writes range tombstones that overlap those below.
pub(super) fn flushed(r: &mut Recorder) {
    use Bound::{Excluded, Included, Unbounded};
    fill(r, 0..8, 100);
    r.flush();
    r.write(vec![removal(DEFAULT, Included(key(2)), Excluded(key(5)))], OsBuffer);
    r.insert(DEFAULT, key(3), 50);
    r.flush();
    r.write(vec![removal(DEFAULT, Excluded(key(3)), Included(key(6)))], OsBuffer);
    r.flush();
    r.write(vec![removal(DEFAULT, Included(key(7)), Unbounded)], Disk);
    r.insert(DEFAULT, key(9), 50);
    r.reopen();
    r.write(vec![removal(DEFAULT, Unbounded, Excluded(key(1)))], OsBuffer);
    r.write(vec![removal(DEFAULT, Included(key(5)), Included(key(5)))], OsBuffer);
    r.flush();
    r.compact();
}

/// Whole tables are covered, and dropped without being read.
pub(super) fn dropped_tables(r: &mut Recorder) {
    for part in 0..3 {
        fill(r, part * 4..part * 4 + 4, 900);
        r.flush();
    }
    r.compact();
    r.remove_ranges(&[(DEFAULT, "key0000", "key0008")], Disk);
    r.flush();
    r.check();
    r.compact();
    fill(r, 2..4, 60);
    r.remove_ranges(&[(DEFAULT, "key0003", "z")], OsBuffer);
    r.compact();
    r.insert_with(DEFAULT, key(9), 20, Disk);
}

/// Batches remove what they wrote before, and write again, in two keyspaces.
pub(super) fn batches(r: &mut Recorder) {
    r.create("other");
    for round in 0..4 {
        let mut put = |keyspace: &str, number| {
            let value = r.new_value(80);
            Change::Put { keyspace: keyspace.into(), key: key(number).into(), value }
        };
        let changes = vec![
            put(DEFAULT, round),
            put("other", round),
            removal(DEFAULT, Bound::Included(key(0)), Bound::Excluded(key(3))),
            put(DEFAULT, round + 1),
            Change::RemovePrefix { keyspace: "other".into(), prefix: "key000".into() },
            put("other", round + 2),
        ];
        r.write(changes, [Memory, OsBuffer, Disk, Memory][round]);
        if round == 1 {
            r.flush_keyspace("other");
        }
    }
    r.persist(OsBuffer);
    r.compact_keyspace("other", None);
}

/// Snapshots need what is removed, until they are released.
pub(super) fn snapshots(r: &mut Recorder) {
    fill(r, 0..6, 300);
    r.hold_snapshot();
    r.remove_ranges(&[(DEFAULT, "key0001", "key0004")], OsBuffer);
    r.flush();
    r.hold_snapshot();
    fill(r, 2..3, 300);
    r.remove_ranges(&[(DEFAULT, "key0002", "key0009")], OsBuffer);
    r.compact();
    r.check_snapshot(0);
    r.release_snapshot(0);
    r.compact();
    r.check_snapshot(0);
    r.release_all();
    r.compact();
    r.insert_with(DEFAULT, key(3), 20, Disk);
}
