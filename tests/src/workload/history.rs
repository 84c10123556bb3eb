//! Workloads in keyspaces with a history: each crash keeps the past that was there.

use sievedb::{
    Durability::{Disk, Memory, OsBuffer},
    HistoryLength,
};

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::Recorder,
    settings::small_keyspace,
};

const NAME: &str = "past";

/// Overwrites, removes and range deletes in a few keys, each noted.
fn rewrite(r: &mut Recorder, round: usize) {
    for number in 0..4 {
        r.insert_with(NAME, key(number), 60, if number % 2 == 0 { OsBuffer } else { Memory });
        r.note_past(NAME);
    }
    r.remove(NAME, key(round % 4));
    r.note_past(NAME);
    if round % 2 == 1 {
        r.remove_ranges(&[(NAME, "key0001", "key0003")], OsBuffer);
        r.note_past(NAME);
    }
    let both = |r: &mut Recorder, keyspace: &str| Change::Put {
        keyspace: keyspace.into(),
        key: key(0).into(),
        value: r.new_value(60),
    };
    let changes = vec![both(r, NAME), both(r, DEFAULT)];
    r.write(changes, Disk);
    r.note_past(NAME);
}

/// A long history, in memtables and tables, and across openings.
pub(super) fn kept(r: &mut Recorder) {
    let long = HistoryLength::Sequences(1000);
    r.create_with(NAME, Some(&small_keyspace().keep_history(long)));
    r.note_past(NAME);
    for round in 0..3 {
        rewrite(r, round);
        match round {
            0 => r.flush_keyspace(NAME),
            1 => r.compact(),
            _ => r.flush(),
        }
        r.check_past();
    }
    r.reopen();
    rewrite(r, 3);
    r.compact();
    r.check_past();
}

/// A history shorter than the writes, so that flushes and compactions cut it.
pub(super) fn cut(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace().keep_history(HistoryLength::Sequences(7))));
    for round in 0..4 {
        rewrite(r, round);
        if round % 2 == 0 {
            r.flush();
        } else {
            r.compact();
        }
        r.check_past();
    }
    r.wait_for_background();
    r.check_past();
}

/// A history that is begun, shortened and made longer beside flushes and compactions.
pub(super) fn set(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace()));
    for number in 0..3 {
        r.insert(NAME, key(number), 60);
        r.flush_keyspace(NAME);
    }
    r.set_history(NAME, Some(HistoryLength::Sequences(1000)));
    r.note_past(NAME);
    rewrite(r, 0);
    r.compact();
    r.check_past();
    r.set_history(NAME, Some(HistoryLength::Time(std::time::Duration::from_secs(3600))));
    rewrite(r, 1);
    r.flush();
    r.reopen();
    rewrite(r, 2);
    r.compact();
    r.check_past();
}
