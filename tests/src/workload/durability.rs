//! Workloads for each [`Durability`].

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder};

pub(super) fn disk(r: &mut Recorder) {
    for number in 0..10 {
        r.insert_with(DEFAULT, key(number), 30, Disk);
    }
    r.remove_with(DEFAULT, key(3), Disk);
    r.insert_with(DEFAULT, key(4), 30, Disk);
}

pub(super) fn os_buffer(r: &mut Recorder) {
    for round in 0..3 {
        for number in 0..8 {
            r.insert(DEFAULT, key(number * 2 + round), 30);
        }
        r.persist(Disk);
    }
    r.remove(DEFAULT, key(2));
    r.insert(DEFAULT, key(1), 10);
}

pub(super) fn memory(r: &mut Recorder) {
    for round in 0..4 {
        for number in 0..5 {
            r.insert_with(DEFAULT, key(number), 30, Memory);
        }
        match round {
            0 => r.persist(OsBuffer),
            1 => r.insert_with(DEFAULT, key(9), 30, Disk),
            2 => r.insert_with(DEFAULT, key(8), 30, OsBuffer),
            _ => r.flush(),
        }
    }
    r.insert_with(DEFAULT, key(7), 30, Memory);
}

pub(super) fn mixed(r: &mut Recorder) {
    let words = [Memory, Memory, OsBuffer, OsBuffer, Disk];
    for _ in 0..45 {
        let word = *r.rng().pick(&words);
        let number = r.rng().below(12);
        match r.rng().below(10) {
            0 => r.persist(word),
            1 => r.remove_with(DEFAULT, key(number), word),
            2 => {
                let (a, b) = (key(number), key(number + 1));
                r.batch(&[(DEFAULT, &a), (DEFAULT, &b)], 60, word);
            }
            _ => r.insert_with(DEFAULT, key(number), 120, word),
        }
    }
}

pub(super) fn reopen(r: &mut Recorder) {
    for round in 0..3 {
        for number in 0..6 {
            r.insert(DEFAULT, key(number + round), 50);
        }
        r.remove(DEFAULT, key(round));
        if round == 1 {
            r.flush();
        }
        r.reopen();
    }
    r.insert_with(DEFAULT, key(1), 50, Disk);
}

/// Several processes continue the log, while keyspaces are created, dropped and flushed.
pub(super) fn reopen_continued(r: &mut Recorder) {
    r.create("gone");
    r.create("other");
    for round in 0..4 {
        r.batch(&[(DEFAULT, &key(round)), ("other", &key(round))], 50, Memory);
        if round < 2 {
            r.insert_with("gone", key(round), 50, OsBuffer);
        }
        match round {
            1 => r.drop_keyspace("gone"),
            2 => r.flush_keyspace("other"),
            _ => {}
        }
        r.reopen();
    }
    r.reopen();
    r.insert_with("other", key(0), 50, Disk);
    r.flush();
    r.reopen();
}

/// Several processes in turn append to one manifest.
pub(super) fn reopen_flushed(r: &mut Recorder) {
    for round in 0..4 {
        for number in 0..3 {
            r.insert(DEFAULT, key(number + round), 50);
        }
        match round {
            1 => r.create("other"),
            2 => r.insert_with("other", key(0), 50, Disk),
            _ => {}
        }
        // Leaves entries in the log of the third one: its open writes them to the manifest.
        if round != 2 {
            r.flush();
        }
        r.reopen();
        if round == 0 {
            // Reopens without any write.
            r.reopen();
        }
    }
    r.insert_with(DEFAULT, key(1), 50, Disk);
}

/// Repeated recoveries, with few or no writes in between.
pub(super) fn reopen_often(r: &mut Recorder) {
    r.reopen();
    r.insert_with(DEFAULT, key(0), 50, Memory);
    r.reopen();
    r.reopen();
    r.insert_with(DEFAULT, key(1), 50, OsBuffer);
    r.flush();
    r.reopen();
    r.remove_with(DEFAULT, key(0), Disk);
    r.reopen();
    r.compact();
    r.reopen();
}
