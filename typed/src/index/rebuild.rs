//! Rebuilds an index from its data.

use std::ops::{AddAssign, Bound};

use sievedb::{Bytes, Keyspace, TimeToLive, Transaction};

use super::{Indexed, Maintained};
use crate::{
    codec::Codec,
    error::Result,
    key::{self, Key},
    transaction::{Expiry, sealed::Writes as _},
};

/// Maximum number of keys that are compared in one transaction.
const CHUNK_KEYS: usize = 256;
/// Memory of a transaction after which it takes no further key. A single key may exceed it.
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
    let removed = for_each_key(indexed, &index.keyspace, |transaction, entry| {
        remove_if_wrong(indexed, index, transaction, entry)
    })?;
    let added = for_each_key(indexed, indexed.keyspace().untyped(), |transaction, key| {
        add_missing(indexed, index, transaction, key)
    })?;
    Ok(IndexChanges { removed: removed.removed, ..added })
}

/// Calls `visit` with each key of `keyspace`, in transactions over several keys. Returns the sum of
/// the changes. Holds no iterator during a call: the iterator would keep the memtables that `visit`
/// fills.
fn for_each_key<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    keyspace: &Keyspace,
    visit: impl Fn(&mut Transaction, &[u8]) -> Result<IndexChanges>,
) -> Result<IndexChanges> {
    let mut changes = IndexChanges::default();
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
        if chunk.is_empty() {
            return Ok(changes);
        }
        let (changed, end) = visit_first(indexed, &chunk, &visit)?;
        debug_assert!(last.as_ref().is_none_or(|last| last < end), "runs forwards");
        changes += changed;
        last = Some(end.clone());
    }
}

/// Calls `visit` with the first of `keys`, in one transaction. Returns the changes, and the last
/// key that was visited.
///
/// Each conflict halves the number of keys: a transaction over all could conflict for ever with
/// frequent writes to one of them.
fn visit_first<'k, K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    keys: &'k [Bytes],
    visit: impl Fn(&mut Transaction, &[u8]) -> Result<IndexChanges>,
) -> Result<(IndexChanges, &'k Bytes)> {
    let mut count = keys.len() * 2;
    indexed.atomically(|transaction| {
        count = (count / 2).max(1);
        let (mut changes, mut end) = (IndexChanges::default(), &keys[0]);
        for key in &keys[..count] {
            changes += visit(transaction, key)?;
            end = key;
            if transaction.bytes() > CHUNK_BYTES as u64 {
                break;
            }
        }
        Ok((changes, end))
    })
}

/// Removes an entry of `index` without a matching entry in the data.
fn remove_if_wrong<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    index: &Maintained<K, V>,
    transaction: &mut Transaction,
    entry: &[u8],
) -> Result<IndexChanges> {
    let is_right = match (index.key_of)(entry) {
        // An earlier version with keys of another type wrote it.
        None => false,
        Some(key) => {
            let bytes = key::to_bytes::<K>(&key);
            let value = indexed.keyspace().read_for_update(transaction, &bytes)?;
            value.is_some_and(|value| (index.derive)(&key, &bytes, &value).contains(entry))
        }
    };
    let mut changes = IndexChanges::default();
    if !is_right && transaction.contains_key(&index.keyspace, entry)? {
        transaction.remove(&index.keyspace, entry)?;
        changes.removed += 1;
    }
    Ok(changes)
}

/// Adds the index entries of an encoded key that are missing, and corrects their expiries.
fn add_missing<K: Key, V, C: Codec<V>>(
    indexed: &Indexed<K, V, C>,
    index: &Maintained<K, V>,
    transaction: &mut Transaction,
    bytes: &[u8],
) -> Result<IndexChanges> {
    let data = indexed.keyspace();
    let mut changes = IndexChanges::default();
    let Some(value) = data.read_for_update(transaction, bytes)? else { return Ok(changes) };
    let ttl = transaction.ttl(data, bytes)?;
    let has_operator = || data.untyped().options().get_merge_operator_name().is_some();
    if matches!(ttl, Some(TimeToLive::Remaining(_))) && has_operator() {
        // Folds its operands: they would remain after the expiry, without index entries.
        let folded = data.encode_value(&value)?;
        transaction.put(data.untyped(), bytes, &folded, Expiry::of(ttl))?;
    }
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
    Ok(changes)
}
