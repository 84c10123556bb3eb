//! Secondary indexes: keyspaces of keys that a function derives from entries.
//!
//! An index entry is a key without value: the index key, then the key of the indexed entry, encoded
//! as a [tuple](crate::key) of the two. It has the expiry of the indexed entry. [`Indexed`] writes
//! entries and their index entries atomically, [`Index`] reads them.

mod indexed;
mod lookup;
mod rebuild;
mod steps;
mod writes;
mod writes_in;

use std::{collections::BTreeSet, sync::Arc};

use sievedb::{Keyspace, TimeToLive, Transaction};

pub use self::{
    indexed::Indexed,
    lookup::{Index, IndexEntries, IndexMatches, IndexSnapshot},
    rebuild::IndexChanges,
};

use crate::{
    key::{Key, Place},
    transaction::{Expiry, sealed::Writes as _},
};

/// Derives the encoded index entries of an entry: its key, the encoded key, and its value.
type Derive<K, V> = Box<dyn Fn(&K, &[u8], &V) -> BTreeSet<Vec<u8>> + Send + Sync>;

/// An index from the view of its writer.
struct Maintained<K, V> {
    keyspace: Keyspace,
    name: Arc<str>,
    /// Decodes the key of the indexed entry from an index entry. `None` for other bytes.
    key_of: fn(&[u8]) -> Option<K>,
    derive: Derive<K, V>,
}

impl<K: Key, V> Maintained<K, V> {
    fn new<IK: Key, I: IntoIterator<Item = IK>>(
        keyspace: Keyspace,
        keys: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        let derive = move |key: &K, key_bytes: &[u8], value: &V| {
            let entry = |index_key: IK| {
                let mut bytes = Vec::new();
                index_key.encode(&mut bytes, Place::Inner);
                bytes.extend_from_slice(key_bytes);
                bytes
            };
            keys(key, value).into_iter().map(entry).collect()
        };
        let key_of = |entry: &[u8]| Some(crate::key::from_bytes::<(IK, K)>(entry).ok()?.1);
        let name = keyspace.name().into();
        Self { keyspace, name, key_of, derive: Box::new(derive) }
    }

    /// Adds a write of an index entry for a value with this time to live. The time to live counts
    /// from the start of the transaction.
    fn insert(
        &self,
        transaction: &mut Transaction,
        entry: &[u8],
        ttl: Option<TimeToLive>,
    ) -> sievedb::Result<()> {
        transaction.put(&self.keyspace, entry, &[], Expiry::of(ttl))
    }
}
