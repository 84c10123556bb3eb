//! Transactions.

use sievedb::{Db, Durability, Error, Transaction};

use super::{Recorder, expiry::TTL};
use crate::model::{Change, shown};

impl Recorder {
    /// Applies `changes` in a transaction, which reads each single key before, and also makes the
    /// changes `undone` and rolls them back.
    ///
    /// # Panics
    ///
    /// If store and history disagree about a key.
    pub fn transaction(&mut self, changes: Vec<Change>, undone: &[Change], durability: Durability) {
        let Some(db) = self.writable() else { return };
        let mut all = changes.iter().chain(undone);
        if all.any(|change| !self.keyspaces.contains_key(change.keyspace())) {
            // The creation of the keyspace failed.
            return;
        }
        let began = self.disk.operations();
        let committed = self.commit(&db, &changes, undone, durability);
        if self.accept("transaction", committed).is_some() {
            self.history.add(changes, began);
            self.history.acknowledge(durability, self.disk.operations());
        } else {
            self.history.add_failed(changes, began);
        }
    }

    fn commit(
        &self,
        db: &Db,
        changes: &[Change],
        undone: &[Change],
        durability: Durability,
    ) -> Result<(), Error> {
        let mut transaction = db.begin();
        let mut model = self.history.model().clone();
        for change in changes {
            if let Change::Put { keyspace, key, .. }
            | Change::PutExpiring { keyspace, key, .. }
            | Change::Remove { keyspace, key } = change
            {
                let got = transaction.get(&self.keyspaces[keyspace].handle, key)?;
                let want = model.entries(keyspace).and_then(|entries| entries.get(key));
                assert_eq!(got.as_ref(), want, "{keyspace} {}", shown(key));
            }
            self.apply(&mut transaction, change)?;
            model.apply(change);
        }
        let savepoint = transaction.set_savepoint();
        for change in undone {
            self.apply(&mut transaction, change)?;
        }
        transaction.rollback_to(&savepoint)?;
        transaction.commit(durability).map(drop)
    }

    fn apply(&self, transaction: &mut Transaction, change: &Change) -> Result<(), Error> {
        let keyspace = &self.keyspaces[change.keyspace()].handle;
        match change {
            Change::Put { key, value, .. } => transaction.insert(keyspace, key, value),
            Change::PutExpiring { key, value, by_default: true, .. } => {
                transaction.insert(keyspace, key, value)
            }
            Change::PutExpiring { key, value, by_default: false, .. } => {
                transaction.insert_with_ttl(keyspace, key, value, TTL)
            }
            Change::Remove { key, .. } => transaction.remove(keyspace, key),
            Change::RemoveRange { range, .. } => transaction.remove_range(keyspace, range.clone()),
            Change::RemovePrefix { prefix, .. } => transaction.remove_prefix(keyspace, prefix),
            other => panic!("{other} is not for a transaction"),
        }
    }
}
