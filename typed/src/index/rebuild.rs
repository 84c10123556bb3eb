//! Rebuilds an index from its data.

use std::ops::{AddAssign, Bound};

use sievedb::{Bytes, Keyspace};

use super::{Indexed, Maintained};
use crate::{
    codec::Codec,
    error::Result,
    key::{self, Key},
};

/// Maximum number of keys that are compared in one transaction.
const CHUNK_KEYS: usize = 256;
/// Maximum bytes of these keys, which the transaction keeps in memory. A single key may exceed it.
const CHUNK_BYTES: usize = 64 << 10;

/// The changes of a [rebuild](Indexed::rebuild).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct IndexChanges {
    /// Index entries that were missing.
    pub added: u64,
    /// Index entries without a matching entry.
    pub removed: u64,
    /// Index entries whose expiry was not that of their value.
    pub expiries: u64,
}

impl AddAssign for IndexChanges {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
        self.expiries += other.expiries;
    }
}

/// Removes wrong entries of `index`, then adds missing ones. Each step is atomic and adds no wrong
/// entry, so an interrupted rebuild can run again.
pub(super) fn rebuild<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    index: &Maintained<K, V>,
) -> Result<IndexChanges> {
    let mut changes = IndexChanges::default();
    for_each_chunk(&index.keyspace, |entries| {
        changes.removed += remove_wrong(indexed, index, entries)?;
        Ok(())
    })?;
    for_each_chunk(indexed.keyspace().untyped(), |keys| {
        changes += add_missing(indexed, index, keys)?;
        Ok(())
    })?;
    Ok(changes)
}

/// Calls `visit` with all keys of `keyspace`, in chunks. Holds no iterator during a call: the
/// iterator would keep the memtables that `visit` fills.
fn for_each_chunk(
    keyspace: &Keyspace,
    mut visit: impl FnMut(&[Bytes]) -> Result<()>,
) -> Result<()> {
    let mut last: Option<Bytes> = None;
    loop {
        let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let keys = keyspace.range::<&[u8]>((start, Bound::Unbounded)).keys();
        let mut bytes = 0;
        let fits = |key: &sievedb::Result<Bytes>| {
            let before = bytes;
            bytes += key.as_ref().map_or(0, |key| key.len());
            before == 0 || bytes <= CHUNK_BYTES
        };
        let keys = keys.take(CHUNK_KEYS).take_while(fits);
        let chunk = keys.collect::<sievedb::Result<Vec<_>>>()?;
        let Some(end) = chunk.last() else { return Ok(()) };
        debug_assert!(last.as_ref().is_none_or(|last| last < end), "runs forwards");
        visit(&chunk)?;
        last = Some(end.clone());
    }
}

/// Removes those of `entries` without a matching entry in the data. Returns their number.
fn remove_wrong<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    index: &Maintained<K, V>,
    entries: &[Bytes],
) -> Result<u64> {
    indexed.atomically(|transaction| {
        let mut removed = 0;
        for entry in entries {
            let is_right = match (index.key_of)(entry) {
                // An earlier version with keys of another type wrote it.
                None => false,
                Some(key) => {
                    let bytes = key::to_bytes::<K>(&key);
                    let value = indexed.keyspace().read_for_update(transaction, &bytes)?;
                    value.is_some_and(|value| {
                        (index.derive)(&key, &bytes, &value).contains(&entry[..])
                    })
                }
            };
            if !is_right && transaction.contains_key(&index.keyspace, entry)? {
                transaction.remove(&index.keyspace, entry)?;
                removed += 1;
            }
        }
        Ok(removed)
    })
}

/// Adds the index entries of `keys` that are missing, and corrects their expiries.
fn add_missing<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    index: &Maintained<K, V>,
    keys: &[Bytes],
) -> Result<IndexChanges> {
    let data = indexed.keyspace();
    indexed.atomically(|transaction| {
        let mut changes = IndexChanges::default();
        for bytes in keys {
            let Some(value) = data.read_for_update(transaction, bytes)? else { continue };
            let ttl = transaction.ttl(data, bytes)?;
            let key = data.decode_key(bytes)?;
            for entry in (index.derive)(&key, bytes, &value) {
                let found = transaction.ttl(&index.keyspace, &entry)?;
                if found == ttl {
                    continue;
                }
                index.insert(transaction, &entry, ttl)?;
                match found {
                    None => changes.added += 1,
                    Some(_) => changes.expiries += 1,
                }
            }
        }
        Ok(changes)
    })
}
