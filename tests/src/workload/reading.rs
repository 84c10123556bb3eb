//! Workloads with readers of replaced data, and a mix of all calls.

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

pub(super) fn snapshots(r: &mut Recorder) {
    r.create("other");
    for round in 0..4 {
        for number in 0..4 {
            r.insert(DEFAULT, key(number), 300);
        }
        r.remove(DEFAULT, key(round));
        r.insert("other", key(round), 50);
        r.hold_snapshot();
        if round % 2 == 1 {
            r.compact();
        } else {
            r.flush();
        }
    }
    r.check_snapshot(0);
    r.release_snapshot(0);
    r.compact();
    r.drop_keyspace("other");
    r.release_all();
    r.compact();
}

/// Obsolete files are unlinked only after their last reader.
pub(super) fn held_ranges(r: &mut Recorder) {
    for round in 0..3 {
        for number in 0..6 {
            r.insert(DEFAULT, key(number), 300);
        }
        r.flush();
        r.hold_range(DEFAULT);
        r.remove(DEFAULT, key(round));
        r.compact();
    }
    r.finish_range(1);
    r.insert_with(DEFAULT, key(1), 300, Disk);
    r.release_all();
    r.insert(DEFAULT, key(2), 300);
    r.compact();
}

pub(super) fn anything(r: &mut Recorder) {
    let words = [Memory, OsBuffer, OsBuffer, Disk];
    r.create("other");
    let mut other = true;
    for _ in 0..70 {
        let word = *r.rng().pick(&words);
        let (a, b) = (r.rng().below(15), r.rng().below(15));
        let bytes = *r.rng().pick(&[10, 100, 700]);
        match r.rng().below(24) {
            0 => r.flush(),
            1 => r.compact(),
            2 => r.persist(word),
            3 if other => r.drop_keyspace("other"),
            3 => r.create("other"),
            4 => r.reopen(),
            5 => r.flush_keyspace(DEFAULT),
            6..=9 => r.remove_with(DEFAULT, key(a), word),
            10..=14 if other => {
                r.batch(&[(DEFAULT, &key(a)), ("other", &key(b))], bytes, word);
            }
            _ => r.insert_with(DEFAULT, key(a), bytes, word),
        }
        other = r.handle("other").is_some();
    }
}
