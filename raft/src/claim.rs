//! One owner for the log of a store: a second one would overwrite its entries, or apply them again.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sievedb::{Db, Keyspace};

use crate::{Error, Result, record::Records};

/// The keyspaces of the logs in use, by the number of their claim.
static IN_USE: Mutex<BTreeMap<u64, Keyspace>> = Mutex::new(BTreeMap::new());

/// The log of a store is in use until this is dropped. Keeps the store open.
pub(crate) struct Claim(u64);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.0).finish()
    }
}

impl Claim {
    /// Claims the log of a store.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is claimed already.
    pub(crate) fn new(records: &Records) -> Result<Arc<Self>> {
        let mut in_use = in_use();
        if in_use.values().any(|claimed| is_of(claimed, &records.db)) {
            return Err(Error::InUse);
        }
        let number = in_use.last_key_value().map_or(0, |(last, _)| last + 1);
        in_use.insert(number, records.keyspace.clone());
        Ok(Arc::new(Self(number)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claimed = in_use().remove(&self.0);
        // Without the lock: this may close the store.
        drop(claimed);
    }
}

fn in_use() -> MutexGuard<'static, BTreeMap<u64, Keyspace>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `true` if `keyspace` and `db` are handles of the same open store. Its files do not
/// identify a store, as a copy has the same ones.
fn is_of(keyspace: &Keyspace, db: &Db) -> bool {
    // The batch is never committed.
    !matches!(db.batch().remove(keyspace, ""), Err(sievedb::Error::ForeignKeyspace { .. }))
}
