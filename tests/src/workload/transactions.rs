//! Workloads of transactions.

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
