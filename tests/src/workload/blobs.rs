//! Workloads with values in blob files.

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder, settings::small_keyspace};

fn open_with_blobs(r: &mut Recorder) {
    r.set_keyspace(small_keyspace().blob_value_bytes(100).blob_garbage_ratio(0.2));
    r.reopen();
}

/// Flushes and compactions beside short values and removals; a snapshot and a checkpoint keep
/// files.
pub(super) fn written(r: &mut Recorder) {
    open_with_blobs(r);
    for round in 0..3 {
        for number in 0..4 {
            let bytes = if number == round { 20 } else { 300 };
            r.insert(DEFAULT, key(number * 2 + round), bytes);
        }
        r.remove(DEFAULT, key(round + 1));
        r.flush();
    }
    r.compact();
    r.checkpoint("data/blobs");
    r.insert_with(DEFAULT, key(1), 300, Disk);
    r.check();
    r.reopen();
    r.compact();
}

/// Values that are written once, beside the log: of any durability, in batches over two keyspaces,
/// overwritten, flushed in parts, and left in the log.
pub(super) fn logged(r: &mut Recorder) {
    r.set_keyspace(small_keyspace().blob_value_bytes(1024));
    r.reopen();
    r.create_with("other", Some(&small_keyspace().blob_value_bytes(1100)));
    for round in 0..2 {
        r.insert_with(DEFAULT, key(1), 1200, Memory);
        r.insert_with(DEFAULT, key(2), 40, Memory);
        r.insert_with(DEFAULT, key(3), 1200, Disk);
        r.batch(&[("other", &key(4)), (DEFAULT, &key(5)), (DEFAULT, &key(6))], 1150, OsBuffer);
        if round == 0 {
            r.flush_keyspace("other");
            r.insert_with("other", key(1), 1300, Disk);
        }
    }
    r.checkpoint("data/logged");
    r.insert_with("other", key(7), 1200, Disk);
    r.check();
    r.reopen();
    r.insert_with(DEFAULT, key(1), 1200, Disk);
    r.flush();
    r.compact();
    r.insert_with(DEFAULT, key(8), 1200, Disk);
}

/// Most values of each file become garbage, so that the others are moved.
pub(super) fn rewritten(r: &mut Recorder) {
    open_with_blobs(r);
    for round in 0..3 {
        for number in 0..6 {
            if round == 0 || number > round {
                r.insert(DEFAULT, key(number), 250);
            }
        }
        r.flush();
        r.compact();
    }
    r.check();
    r.insert_with(DEFAULT, key(9), 300, Disk);
}

/// Values in pieces from readers, beside unsynced writes; one is replaced, and one moved.
pub(super) fn streamed(r: &mut Recorder) {
    open_with_blobs(r);
    r.create("other");
    r.insert_with(DEFAULT, key(1), 300, Memory);
    r.insert_with("other", key(1), 40, Memory);
    r.insert_reader(DEFAULT, key(2), 140_000);
    r.insert_with("other", key(3), 40, Memory);
    r.insert_reader(DEFAULT, key(2), 135_000);
    r.compact();
    r.reopen();
    r.insert_with(DEFAULT, key(1), 40, Disk);
}
