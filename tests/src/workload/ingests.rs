//! Workloads with ingests.

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder, settings::small_keyspace};

/// Ingests above and beside data of every age, of one table and of several.
pub(super) fn all_levels(r: &mut Recorder) {
    r.create("other");
    r.ingest(DEFAULT, (0..24).map(key), 400);
    r.insert_with(DEFAULT, key(3), 40, OsBuffer);
    r.ingest(DEFAULT, (2..5).map(key), 60);
    r.insert_with("other", key(3), 40, Memory);
    r.ingest(DEFAULT, (30..32).map(key), 60);
    r.remove(DEFAULT, key(4));
    r.flush();
    r.ingest(DEFAULT, (4..8).map(key), 60);
    r.compact();
    r.reopen();
    r.ingest("other", (0..3).map(key), 60);
    r.clear(DEFAULT);
    r.ingest(DEFAULT, (1..4).map(key), 60);
    r.insert_with(DEFAULT, key(2), 40, Disk);
}

/// Long values, which replace each other in blob files.
pub(super) fn of_blobs(r: &mut Recorder) {
    r.set_keyspace(small_keyspace().blob_value_bytes(100).blob_garbage_ratio(0.2));
    r.reopen();
    r.ingest(DEFAULT, (0..16).map(key), 300);
    r.insert_with(DEFAULT, key(3), 200, OsBuffer);
    r.ingest(DEFAULT, (2..9).map(key), 300);
    r.compact();
    r.ingest(DEFAULT, (4..6).map(key), 50);
    r.checkpoint("data/ingested");
    r.compact();
    r.check();
    r.insert_with(DEFAULT, key(2), 200, Disk);
}

/// Files that were written elsewhere, above and beside data.
pub(super) fn of_files(r: &mut Recorder) {
    r.ingest_files(DEFAULT, (0..24).map(key), 300, 3);
    r.insert_with(DEFAULT, key(3), 40, OsBuffer);
    r.ingest_files(DEFAULT, (2..6).map(key), 60, 2);
    r.flush();
    r.ingest_files(DEFAULT, (4..9).map(key), 60, 1);
    r.compact();
    r.reopen();
    r.insert_with(DEFAULT, key(2), 40, Disk);
}

/// Writes to another keyspace that are durable only with the ingest.
pub(super) fn beside_writes(r: &mut Recorder) {
    r.create("other");
    for round in 0..3 {
        r.batch(&[(DEFAULT, &key(1)), ("other", &key(9))], 60, Memory);
        for number in 0..4 {
            r.insert_with("other", key(number), 40, Memory);
        }
        r.ingest(DEFAULT, (round..round + 12).map(key), 500);
        r.insert_with("other", key(round), 40, Memory);
    }
    r.drop_keyspace("other");
    r.create("other");
    r.ingest("other", (0..2).map(key), 60);
    r.checkpoint("data/ingested");
    r.insert_with("other", key(1), 40, Disk);
}
