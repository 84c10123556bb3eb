//! Memtable entries that a flush did not write.

use std::sync::Arc;

use sievedb_filter::hash::key_hash;
use sievedb_format::SequenceNumber;
use sievedb_memtable::Memtable;

use crate::{read::view::PlacedMemtable, resolve::is_tombstone, table::store::TableStore};

/// Copies the entries above `flushed` into a new memtable for `bytes_target` bytes. The writer
/// froze its memtable at `flushed`, which a follower learns only after the flush.
pub(super) fn rest_above(
    placed: &PlacedMemtable,
    flushed: SequenceNumber,
    bytes_target: usize,
    tables: &TableStore,
) -> Arc<PlacedMemtable> {
    let rest = PlacedMemtable::new(bytes_target, &tables.memory);
    rest.place(flushed + 1, placed.last_sequence());
    rest.note_inserted(placed.last_sequence());
    let mut bytes = 0;
    for tombstone in placed.memtable.range_tombstones().lists().iter().flat_map(|list| list.iter())
    {
        if tombstone.sequence > flushed {
            bytes += Memtable::range_tombstone_charge(tombstone.start.len(), tombstone.end.len());
            rest.memtable.insert_range_tombstone(tombstone.clone());
        }
    }
    let mut cursor = Arc::clone(&*placed.memtable).cursor();
    cursor.seek_to_first();
    while let Some(key) = cursor.key() {
        if key.trailer.sequence() > flushed {
            let value = cursor.value_ref();
            bytes += Memtable::charge(key.user_key.len(), value.len());
            let hash = key_hash(key.user_key, tables.hash_seed);
            rest.memtable.insert(hash, key.user_key, key.trailer, value);
            if is_tombstone(key.trailer) {
                rest.note_tombstone();
            }
        }
        cursor.next();
    }
    rest.reserve(bytes);
    Arc::new(rest)
}
