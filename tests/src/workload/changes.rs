//! Workloads with a reader of the change stream.

use sievedb::{
    ChangeRetention,
    Durability::{Disk, Memory, OsBuffer},
};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

/// Segments are retained by flushes and closes, and read before and after.
pub(super) fn retained(r: &mut Recorder) {
    r.retain_changes(ChangeRetention::bytes(1 << 20));
    r.create("other");
    for round in 0..3 {
        for number in 0..4 {
            r.batch(&[(DEFAULT, &key(number)), ("other", &key(round))], 600, OsBuffer);
        }
        r.follow();
        r.insert_with(DEFAULT, key(round), 40, Memory);
        if round != 1 {
            r.flush();
        }
        r.follow();
        r.remove(DEFAULT, key(0));
        if round > 0 {
            r.reopen();
        }
    }
    r.compact();
    r.follow();
    r.insert_with(DEFAULT, key(1), 50, Disk);
}

/// Changes of keyspaces are in the stream.
pub(super) fn keyspaces(r: &mut Recorder) {
    r.insert_with(DEFAULT, key(0), 40, Disk);
    r.create("old");
    r.retain_changes(ChangeRetention::bytes(1 << 20));
    r.insert_with("old", key(0), 40, OsBuffer);
    r.create("gone");
    r.insert_with("gone", key(1), 40, OsBuffer);
    r.rename("old", "new");
    r.follow();
    r.insert_with("new", key(2), 40, OsBuffer);
    r.clear(DEFAULT);
    r.remove_ranges(&[("new", "key0001", "key0009")], OsBuffer);
    r.drop_keyspace("gone");
    r.reopen();
    r.follow();
    r.create("gone");
    r.insert_with("gone", key(3), 40, Disk);
    r.flush();
    r.follow();
}

/// The oldest segments are dropped, and the reader may fall behind.
pub(super) fn dropped(r: &mut Recorder) {
    r.retain_changes(ChangeRetention::bytes(10 << 10));
    for round in 0..4 {
        for number in 0..3 {
            r.insert(DEFAULT, key(number), 1500);
        }
        r.flush();
        if round % 2 == 0 {
            r.follow();
        }
    }
    r.reopen();
    r.follow();
    r.retain_changes(ChangeRetention::none());
    r.insert_with(DEFAULT, key(0), 40, Disk);
    r.retain_changes(ChangeRetention::bytes(1 << 20));
    r.insert_with(DEFAULT, key(1), 40, OsBuffer);
    r.follow();
}

/// Random calls.
pub(super) fn anything(r: &mut Recorder) {
    r.retain_changes(ChangeRetention::bytes(1 << 20));
    super::reading::anything(r);
    r.follow();
}

/// A batch of several fragments, and batches that no sync has reached.
pub(super) fn large(r: &mut Recorder) {
    r.retain_changes(ChangeRetention::bytes(8 << 20));
    r.create("other");
    r.batch(&[(DEFAULT, "a"), ("other", "a"), (DEFAULT, "b")], 400 << 10, OsBuffer);
    r.follow();
    r.insert_with("other", "c", 20, Memory);
    r.flush_keyspace("other");
    r.insert_with(DEFAULT, "c", 20, OsBuffer);
    r.follow();
}
