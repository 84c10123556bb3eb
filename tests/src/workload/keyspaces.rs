//! Workloads with several keyspaces, which share logs and manifest.

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

pub(super) fn batches(r: &mut Recorder) {
    r.create("names");
    for number in 0..10 {
        let (a, b) = (key(number), key(9 - number));
        let word = if number % 4 == 3 { Disk } else { OsBuffer };
        r.batch(&[(DEFAULT, &a), ("names", &b), ("names", &a)], 100, word);
    }
    r.flush();
    r.batch(&[("names", "x"), (DEFAULT, "x")], 100, Disk);
}

/// Half of the batches are in tables.
pub(super) fn half_flushed(r: &mut Recorder) {
    r.create("names");
    for round in 0..4 {
        for number in 0..3 {
            let key = key(number + round);
            r.batch(&[(DEFAULT, &key), ("names", &key)], 60, OsBuffer);
        }
        r.flush_keyspace(if round % 2 == 0 { "names" } else { DEFAULT });
    }
    r.compact_keyspace("names", None);
    r.batch(&[(DEFAULT, "x"), ("names", "x")], 60, OsBuffer);
}

/// As [`half_flushed`], with writes that are in no file when the flush starts.
pub(super) fn batches_memory(r: &mut Recorder) {
    r.create("names");
    for round in 0..3 {
        for number in 0..4 {
            let key = key(number + round);
            r.batch(&[(DEFAULT, &key), ("names", &key)], 300, Memory);
        }
        r.flush_keyspace(if round % 2 == 0 { DEFAULT } else { "names" });
        r.batch(&[(DEFAULT, "x"), ("names", "x")], 1500, Memory);
    }
    r.persist(OsBuffer);
}

pub(super) fn drop(r: &mut Recorder) {
    r.create("gone");
    for number in 0..6 {
        let key = key(number);
        r.batch(&[("gone", &key), (DEFAULT, &key)], 200, OsBuffer);
    }
    r.flush();
    r.insert("gone", key(7), 200);
    r.drop_keyspace("gone");
    r.insert(DEFAULT, key(1), 200);
    r.flush();
}

pub(super) fn drop_unflushed(r: &mut Recorder) {
    r.create("gone");
    for number in 0..6 {
        let key = key(number);
        r.batch(&[("gone", &key), (DEFAULT, &key)], 200, Memory);
    }
    r.drop_keyspace("gone");
    r.insert(DEFAULT, key(1), 200);
    r.reopen();
    r.insert(DEFAULT, key(2), 200);
}

/// The old entries must not return under the old name.
pub(super) fn recreate(r: &mut Recorder) {
    for round in 0..3 {
        r.create("again");
        for number in round..round + 4 {
            r.insert("again", key(number), 100);
        }
        if round == 1 {
            r.flush();
        }
        r.batch(&[("again", "x"), (DEFAULT, "x")], 100, OsBuffer);
        r.drop_keyspace("again");
    }
    r.create("again");
    r.insert("again", key(1), 100);
    r.flush();
    r.reopen();
    r.insert_with("again", key(2), 100, Disk);
}

/// Tables from before a clear, entries from behind it, and the same keys again.
pub(super) fn clear(r: &mut Recorder) {
    r.create("emptied");
    for number in 0..4 {
        let key = key(number);
        r.batch(&[("emptied", &key), (DEFAULT, &key)], 200, OsBuffer);
    }
    r.flush();
    r.insert("emptied", key(5), 200);
    r.hold_snapshot();
    r.clear("emptied");
    r.batch(&[("emptied", "key0001"), (DEFAULT, "x")], 200, OsBuffer);
    r.check_snapshot(0);
    r.flush_keyspace("emptied");
    r.clear(DEFAULT);
    r.insert("emptied", key(2), 200);
    r.compact();
    r.release_all();
    r.insert(DEFAULT, key(1), 200);
}

/// Everything before and behind the clears is in the log alone.
pub(super) fn clear_unflushed(r: &mut Recorder) {
    r.create("emptied");
    for round in 0..3 {
        for number in 0..3 {
            let key = key(number + round);
            r.batch(&[("emptied", &key), (DEFAULT, &key)], 200, Memory);
        }
        r.clear("emptied");
        r.insert_with("emptied", key(round), 200, Memory);
        if round == 1 {
            r.reopen();
        }
    }
    r.persist(OsBuffer);
}

pub(super) fn rename(r: &mut Recorder) {
    r.create("new");
    r.batch(&[("new", "a"), (DEFAULT, "a")], 100, OsBuffer);
    r.create("old");
    r.insert("old", "b", 100);
    r.flush_keyspace("new");
    r.drop_keyspace("old");
    r.rename("new", "old");
    r.insert("old", "c", 100);
    r.create("new");
    r.insert("new", "d", 100);
    r.reopen();
    r.rename("old", "third");
    r.rename("new", "old");
    r.insert_with("third", "e", 100, Memory);
    r.flush();
    r.rename("old", "new");
}

/// Two keyspaces change places, with tables, range tombstones and a clear between.
pub(super) fn swap_names(r: &mut Recorder) {
    for name in ["front", "back"] {
        r.create(name);
        r.insert(name, key(0), 300);
        r.insert(name, key(1), 300);
    }
    r.flush_keyspace("front");
    r.remove_ranges(&[("back", "key0001", "z"), ("front", "", "key0001")], OsBuffer);
    r.rename("front", "spare");
    r.rename("back", "front");
    r.clear("spare");
    r.batch(&[("front", "x"), ("spare", "x")], 100, Memory);
    r.rename("spare", "back");
    r.insert("back", key(2), 100);
    r.flush();
    r.drop_keyspace("front");
    r.reopen();
    r.rename("back", "front");
    r.insert_with("front", key(3), 100, Disk);
}

pub(super) fn many(r: &mut Recorder) {
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        r.create(name);
        r.insert(name, key(0), 50);
    }
    let all: Vec<_> = names.iter().map(|name| (*name, "in all")).collect();
    r.batch(&all, 50, OsBuffer);
    r.drop_keyspace("b");
    r.flush_keyspace("c");
    r.drop_keyspace("c");
    let rest = [("a", "rest"), ("d", "rest"), ("e", "rest")];
    r.batch(&rest, 50, Disk);
    r.create("b");
    r.compact();
}
