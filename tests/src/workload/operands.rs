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
