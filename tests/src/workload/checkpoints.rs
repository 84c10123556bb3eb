//! Workloads with checkpoints: the store is as if they had not been taken.

use sievedb::Durability::{Disk, Memory};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

/// Checkpoints between all other calls.
pub(super) fn taken(r: &mut Recorder) {
    r.checkpoint("data/empty");
    r.create("other");
    for round in 0..3 {
        for number in 0..3 {
            r.insert_with(DEFAULT, key(number), 200, Memory);
        }
        r.batch(&[(DEFAULT, "a"), ("other", "b")], 100, Disk);
        r.insert_with("other", key(round), 50, Memory);
        r.checkpoint(&format!("data/logged{round}"));
        r.flush();
        r.remove(DEFAULT, key(round));
        r.checkpoint(&format!("data/flushed{round}"));
    }
    r.compact();
    r.drop_keyspace("other");
    r.checkpoint("data/compacted");
    r.insert_with(DEFAULT, key(9), 100, Disk);
    r.reopen();
    r.checkpoint("data/reopened");
}

/// The log has several segments, and old ones are dropped.
pub(super) fn of_long_logs(r: &mut Recorder) {
    r.create("idle");
    r.insert("idle", "a", 100);
    for round in 0..4 {
        for number in 0..8 {
            r.insert(DEFAULT, key(number), 600);
        }
        r.hold_range(DEFAULT);
        r.checkpoint(&format!("data/long{round}"));
        r.compact();
    }
    r.release_all();
}
