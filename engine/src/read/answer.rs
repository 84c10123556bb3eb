//! What a lookup returns of the value that it found.

use bytes::Bytes;
use sievedb_sstable::FoundValue;

/// What a lookup returns of the value that it found.
pub(crate) trait Answer: Sized {
    /// Of a value in a memtable.
    fn of_memtable(value: &[u8]) -> Self;

    /// Of a value in a block.
    fn of_block(value: &FoundValue<'_>) -> Self;
}

/// The value. One in a memtable is copied.
impl Answer for Bytes {
    fn of_memtable(value: &[u8]) -> Self {
        Self::copy_from_slice(value)
    }

    fn of_block(value: &FoundValue<'_>) -> Self {
        value.to_bytes()
    }
}

/// That there is one. Touches neither the value nor its reference count.
impl Answer for () {
    fn of_memtable(_: &[u8]) -> Self {}

    fn of_block(_: &FoundValue<'_>) -> Self {}
}
