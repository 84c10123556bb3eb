//! Workloads of transactions.

use std::ops::Bound;

use sievedb::{
    Durability::{Disk, Memory, OsBuffer},
    Error,
};

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

/// Writes rolled back to a savepoint never return, and writes that were kept do.
pub(super) fn savepoints(r: &mut Recorder) {
    r.create("names");
    for number in 0..5 {
        let (first, last) = (r.new_value(90), r.new_value(90));
        let put = |keyspace: &str, key: String, value| Change::Put {
            keyspace: keyspace.into(),
            key: key.into(),
            value,
        };
        let kept = vec![
            put(DEFAULT, key(number), first.clone()),
            put("names", key(number), last.clone()),
            Change::Remove { keyspace: DEFAULT.into(), key: key(number + 4).into() },
        ];
        let durability = [Memory, OsBuffer, Disk][number % 3];
        r.call(kept, durability, |db| {
            let names = db.open_keyspace("names")?;
            let mut transaction = db.begin();
            transaction.insert(db, key(number), &first)?;
            let outer = transaction.set_savepoint();
            transaction.insert(db, key(number), "undone")?;
            transaction.insert(&names, key(8), "undone")?;
            let inner = transaction.set_savepoint();
            transaction.remove(&names, key(0))?;
            transaction.rollback_to(&inner)?;
            transaction.release(inner)?;
            transaction.rollback_to(&outer)?;
            transaction.insert(&names, key(number), &last)?;
            transaction.remove(db, key(number + 4))?;
            transaction.release(outer)?;
            transaction.commit(durability).map(drop)
        });
        match number {
            1 => r.flush(),
            3 => r.reopen(),
            _ => {}
        }
    }
    r.compact();
}

/// Of two transactions that conflict one commits; the other writes nothing.
pub(super) fn conflicts(r: &mut Recorder) {
    r.create("names");
    for number in 0..4 {
        let value = r.new_value(150);
        let of = |keyspace: &str| Change::Put {
            keyspace: keyspace.into(),
            key: key(number).into(),
            value: value.clone(),
        };
        r.call(vec![of(DEFAULT), of("names")], Disk, |db| {
            let names = db.open_keyspace("names")?;
            let (mut winner, mut loser) = (db.begin(), db.begin());
            for (transaction, value) in [(&mut winner, &value[..]), (&mut loser, b"lost")] {
                transaction.get_for_update(db, key(number))?;
                let seen = transaction.iter(&names).next().transpose()?;
                assert_eq!(seen.is_some(), number > 0);
                transaction.insert(db, key(number), value)?;
                transaction.insert(&names, key(number), value)?;
            }
            winner.commit(Disk)?;
            let lost = loser.commit(Disk);
            assert!(matches!(lost, Err(Error::Conflict { .. })), "{lost:?}");
            Ok(())
        });
        if number % 2 == 1 {
            r.flush_keyspace(DEFAULT);
        }
    }
}
