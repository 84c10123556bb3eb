//! Workload with merge operands.

use std::sync::Arc;

use sievedb::{Append, Durability::Disk};

use super::key;
use crate::{model::Change, recorder::Recorder, settings::small_keyspace};

const NAME: &str = "lists";

/// Operands over values, tombstones, nothing and snapshots, in memtables and on all levels.
pub(super) fn operands(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace().merge_operator(Arc::new(Append::new()))));
    for round in 0..4 {
        r.insert(NAME, key(round), 40);
        for number in 0..4 {
            r.merge(NAME, key(number), 40);
            r.merge(NAME, key(number), 10);
        }
        r.remove(NAME, key((round + 1) % 4));
        let merge = |number, operand: &'static str| Change::Merge {
            keyspace: NAME.into(),
            key: key(number).into(),
            operand: operand.into(),
        };
        r.write(vec![merge(round, "a"), merge(round, "b"), merge(9, "c")], Disk);
        match round {
            0 => r.flush(),
            1 => r.hold_snapshot(),
            2 => r.compact(),
            _ => {}
        }
    }
    r.flush();
    r.reopen();
    r.merge(NAME, key(0), 10);
    r.compact();
    r.release_all();
    r.compact();
}

fn create(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace().merge_operator(Arc::new(Append::new()))));
}

/// A flush folds operands onto values and tombstones, and with nothing below onto nothing.
pub(super) fn folded_by_flushes(r: &mut Recorder) {
    create(r);
    for round in 0..3 {
        r.insert(NAME, key(0), 40);
        r.remove(NAME, key(1));
        for _ in 0..3 {
            (0..3).for_each(|number| r.merge(NAME, key(number), 30));
        }
        r.flush_keyspace(NAME);
        r.merge(NAME, key(round), 30);
        r.persist(Disk);
    }
    r.reopen();
    r.merge(NAME, key(2), 30);
    r.flush();
}

/// Compactions fold operands partly above a deeper value, then onto it.
pub(super) fn folded_by_compactions(r: &mut Recorder) {
    create(r);
    for number in 0..8 {
        r.insert(NAME, key(number), 700);
    }
    r.compact();
    for round in 0..6 {
        r.merge(NAME, key(round % 2), 60);
        r.merge(NAME, key(7), 60);
        r.remove_ranges(&[(NAME, &key(round + 1), &key(round + 2))], Disk);
        if round == 2 {
            r.hold_snapshot();
        }
        r.flush();
    }
    r.check_snapshot(0);
    r.compact();
    r.release_all();
    r.compact();
    r.merge(NAME, key(7), 20);
}

/// A keyspace gets its operator after values were written, and is renamed and cleared.
pub(super) fn operator_added(r: &mut Recorder) {
    r.create_with(NAME, Some(&small_keyspace()));
    for number in 0..3 {
        r.insert(NAME, key(number), 40);
    }
    r.flush();
    r.call(Vec::new(), Disk, |db| {
        let lists = db.open_keyspace(NAME)?;
        lists.set_options(lists.options().merge_operator(Arc::new(Append::new())))
    });
    if !r.failures().is_empty() {
        return;
    }
    r.merge(NAME, key(0), 40);
    r.merge(NAME, key(3), 40);
    r.rename(NAME, "renamed");
    r.merge("renamed", key(0), 40);
    r.reopen();
    r.merge("renamed", key(1), 40);
    r.clear("renamed");
    r.merge("renamed", key(1), 40);
    r.compact();
}
