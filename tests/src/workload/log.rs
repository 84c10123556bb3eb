//! Workloads for logs and manifests.

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

/// Segments end after 4 KiB, long before the memtable of a rarely written keyspace is full.
pub(super) fn rotation(r: &mut Recorder) {
    r.create("other");
    for number in 0..10 {
        let keyspace = if number % 2 == 0 { DEFAULT } else { "other" };
        r.insert(keyspace, key(number), 900);
        if number % 4 == 3 {
            r.persist(Disk);
        }
    }
    r.insert_with(DEFAULT, key(3), 4000, Disk);
    r.insert_with(DEFAULT, key(4), 4000, Memory);
    r.insert_with("other", key(5), 100, OsBuffer);
}

/// An idle keyspace pins the oldest log until the total exceeds its limit.
pub(super) fn pinned(r: &mut Recorder) {
    r.create("idle");
    r.insert_with("idle", key(0), 20, Disk);
    for number in 0..24 {
        r.insert(DEFAULT, key(number % 7), 1200);
        if number % 3 == 0 {
            r.persist(Disk);
        }
    }
    r.insert_with("idle", key(1), 20, Disk);
}

/// A batch of more than one fragment.
pub(super) fn large_batch(r: &mut Recorder) {
    r.create("other");
    r.insert_with(DEFAULT, key(0), 20, Disk);
    r.batch(&[(DEFAULT, "a"), ("other", "a"), (DEFAULT, "b"), ("other", "b")], 400 << 10, OsBuffer);
    r.insert(DEFAULT, key(1), 20);
    r.batch(&[(DEFAULT, "c"), ("other", "a")], 600 << 10, Disk);
    r.remove_with(DEFAULT, "a", Disk);
}

pub(super) fn large_values(r: &mut Recorder) {
    for number in 0..6 {
        r.insert(DEFAULT, key(number), 20 << 10);
        r.insert(DEFAULT, key(number + 3), 10);
        if number % 2 == 1 {
            r.persist(Disk);
        }
    }
    r.remove(DEFAULT, key(2));
    r.flush();
}

/// Long keys make long table bounds, so that the manifest outgrows its first edit.
pub(super) fn manifest_growth(r: &mut Recorder) {
    for number in 0..12 {
        let mut long = key(number).into_bytes();
        r.rng().fill(&mut long, 60 << 10);
        r.insert(DEFAULT, long, 20);
        r.flush();
    }
    r.insert_with(DEFAULT, key(1), 20, Disk);
}
