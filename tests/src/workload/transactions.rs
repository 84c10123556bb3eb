//! Workloads of transactions.

use std::ops::Bound;

use sievedb::Durability::{Disk, Memory, OsBuffer};

use super::key;
use crate::{
    model::{Change, DEFAULT},
    recorder::Recorder,
};

/// Transactions over two keyspaces, with changes that are rolled back, beside flushes.
pub(super) fn transfers(r: &mut Recorder) {
    r.create("names");
    for number in 0..8 {
        let mut put = |keyspace: &str, key: String| {
            let value = r.new_value(120);
            Change::Put { keyspace: keyspace.into(), key: key.into(), value }
        };
        let undone = [put(DEFAULT, key(number)), put("names", "undone".to_owned())];
        let mut changes = vec![put(DEFAULT, key(number)), put("names", key(7 - number))];
        if number % 3 == 2 {
            let removed = key(number - 1).into();
            changes.push(Change::Remove { keyspace: DEFAULT.into(), key: removed });
        }
        let durability = [OsBuffer, Disk, Memory][number % 3];
        r.transaction(changes, &undone, durability);
        if number == 4 {
            r.flush_keyspace("names");
        }
    }
    r.compact();
    r.remove(DEFAULT, key(0));
}

/// Transactions that remove ranges of two keyspaces and write into them, and roll others back.
pub(super) fn ranges(r: &mut Recorder) {
    r.create("names");
    for number in 0..7 {
        let keyspaces = [DEFAULT, "names"];
        let mut put = |at: usize, key: String| {
            let value = r.new_value(120);
            Change::Put { keyspace: keyspaces[at].into(), key: key.into(), value }
        };
        let remove_range = |at: usize, from: usize, to: usize| Change::RemoveRange {
            keyspace: keyspaces[at].into(),
            range: (Bound::Included(key(from).into()), Bound::Excluded(key(to).into())),
        };
        let at = number % 2;
        let changes = vec![
            put(at, key(number)),
            put(1 - at, key(number + 1)),
            remove_range(at, number, number + 2),
            put(at, key(number + 1)),
            put(at, key(number + 3)),
        ];
        let prefix = "key".into();
        let undone = [
            Change::RemovePrefix { keyspace: keyspaces[at].into(), prefix },
            put(at, key(number)),
            remove_range(1 - at, 0, 9),
        ];
        r.transaction(changes, &undone, [OsBuffer, Disk, Memory][number % 3]);
        if number == 3 {
            r.flush_keyspace("names");
        }
    }
    r.compact();
    r.remove(DEFAULT, key(0));
}
