//! Workloads with flushes and compactions.

use sievedb::Durability::{Disk, OsBuffer};

use super::key;
use crate::{model::DEFAULT, recorder::Recorder, settings::small_keyspace};

pub(super) fn flush(r: &mut Recorder) {
    for round in 0..3 {
        for number in 0..5 {
            r.insert(DEFAULT, key(number * 3 + round), 40);
        }
        r.flush();
        r.insert(DEFAULT, key(round), 40);
    }
    r.flush();
}

/// Memtables fill up during writes.
pub(super) fn flush_by_size(r: &mut Recorder) {
    for number in 0..24 {
        r.insert(DEFAULT, key(number % 9), 600);
        if number % 5 == 0 {
            r.persist(Disk);
        }
    }
}

pub(super) fn compaction(r: &mut Recorder) {
    for round in 0..3 {
        for number in 0..8 {
            r.insert(DEFAULT, key(number + 2 * round), 300);
        }
        r.remove(DEFAULT, key(round));
        r.flush();
    }
    r.compact();
    r.insert(DEFAULT, key(2), 300);
    r.remove(DEFAULT, key(9));
    r.compact();
}

/// Level 0 fills up until it is compacted.
pub(super) fn compaction_by_count(r: &mut Recorder) {
    for round in 0..10 {
        for number in 0..3 {
            r.insert(DEFAULT, key(number * 5 + round % 4), 500);
        }
        r.flush();
    }
    r.insert_with(DEFAULT, key(0), 20, Disk);
}

/// Tables that do not overlap only change their level.
pub(super) fn trivial_moves(r: &mut Recorder) {
    for round in 0..9 {
        for number in 0..3 {
            r.insert(DEFAULT, key(round * 3 + number), 400);
        }
        r.flush();
    }
    r.insert_with(DEFAULT, key(99), 20, Disk);
}

/// A removed key must not return, whichever runs are merged.
pub(super) fn overwrite_remove(r: &mut Recorder) {
    for round in 0..5 {
        for number in 0..6 {
            if (number + round) % 3 == 0 {
                r.remove(DEFAULT, key(number));
            } else {
                r.insert(DEFAULT, key(number), 200);
            }
        }
        match round {
            1 | 3 => r.flush(),
            2 => r.compact(),
            _ => r.persist(Disk),
        }
    }
}

/// Values on a deep level, tombstones for them above, and compactions between the levels above.
pub(super) fn tombstones_above(r: &mut Recorder) {
    r.set_keyspace(small_keyspace().base_level_bytes(4 << 10));
    r.reopen();
    for number in 0..24 {
        r.insert(DEFAULT, key(number), 1500);
    }
    r.compact();
    for round in 0..6 {
        for number in 0..4 {
            r.remove(DEFAULT, key(number * 6 + round));
            r.insert(DEFAULT, key(100 + number * 6 + round % 2), 1200);
        }
        r.flush();
    }
    r.check();
    r.persist(Disk);
}

/// Runs of level 0 are merged with each other above a much larger level, and move down later.
pub(super) fn merges_in_level0(r: &mut Recorder) {
    r.set_keyspace(small_keyspace().base_level_bytes(256 << 10));
    r.reopen();
    for number in 0..40 {
        r.insert(DEFAULT, key(number), 700);
        if number % 8 == 0 {
            r.persist(Disk);
        }
    }
    r.compact();
    for round in 0..9 {
        r.insert(DEFAULT, key(round % 3), 100);
        r.remove(DEFAULT, key(20 + round / 2));
        r.insert(DEFAULT, key(39 - round % 2), 100);
        r.flush();
    }
    r.check();
    r.persist(Disk);
}

/// All keys are removed, and new ones written.
pub(super) fn remove_all(r: &mut Recorder) {
    for number in 0..8 {
        r.insert(DEFAULT, key(number), 300);
    }
    r.flush();
    for number in 0..8 {
        r.remove(DEFAULT, key(number));
    }
    r.flush();
    r.compact();
    r.insert_with(DEFAULT, key(3), 20, Disk);
    r.compact();
}

pub(super) fn odd_keys(r: &mut Recorder) {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\xff", b"\xff\xff\xff\xff", b"a\0", b"a"];
    for round in 0..3 {
        for key in keys {
            r.insert_with(DEFAULT, key.to_vec(), 0, OsBuffer);
        }
        r.remove(DEFAULT, keys[round].to_vec());
        r.remove(DEFAULT, b"never".to_vec());
        r.flush();
    }
    r.compact();
    r.insert_with(DEFAULT, keys[0].to_vec(), 5, Disk);
}

/// Batches remove ranges of two keyspaces, which flushes and compactions apply.
pub(super) fn range_removals(r: &mut Recorder) {
    r.create("other");
    for round in 0..3 {
        for number in 0..6 {
            r.batch(&[(DEFAULT, &key(number)), ("other", &key(number))], 60, OsBuffer);
        }
        let (first, last) = (key(round), key(round + 3));
        r.remove_ranges(&[(DEFAULT, &first, &last), ("other", &first, &last)], OsBuffer);
        r.insert(DEFAULT, key(round + 1), 40);
        match round {
            1 => r.flush_keyspace("other"),
            _ => r.flush(),
        }
    }
    r.remove_ranges(&[(DEFAULT, "", "key0002"), ("other", "key0004", "z")], Disk);
    r.compact();
    r.insert_with("other", key(5), 20, Disk);
}
