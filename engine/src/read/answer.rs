//! What a lookup returns of the version that it found.

use bytes::Bytes;
use sievedb_format::{SequenceNumber, Trailer};
use sievedb_sstable::ValueRef;

use crate::resolve::{ReadPoint, Stored, Verdict, Version};

/// What the newest visible version says about its key.
#[derive(Debug)]
pub(crate) enum Found<A> {
    /// The key has a value.
    Value(A),
    /// The key has no value.
    Deleted,
    /// The version alone does not give the value: see [`older`](super::older).
    MoreNeeded,
}

impl<A> Found<A> {
    /// Resolves the key for a reader at `sequence` by the version with this trailer. `cover` as in
    /// [`ReadPoint::resolve`]; `answer` reads a value that is stored inline.
    #[inline]
    pub(crate) fn resolve(
        sequence: SequenceNumber,
        trailer: Trailer,
        cover: impl FnOnce() -> SequenceNumber,
        answer: impl FnOnce() -> A,
    ) -> Self {
        let Ok(version) = Version::decode(trailer) else { return Self::MoreNeeded };
        match ReadPoint::new(sequence).resolve(version, cover) {
            Verdict::Value(Stored::Inline) => Self::Value(answer()),
            Verdict::Deleted => Self::Deleted,
            Verdict::Value(Stored::Blob) | Verdict::MoreNeeded(_) => Self::MoreNeeded,
        }
    }
}

/// What a lookup returns of the value that it found.
pub(crate) trait Answer: Sized {
    /// Of a value in a memtable.
    fn of_memtable(value: &[u8]) -> Self;

    /// Of a value in a block.
    fn of_block(value: &ValueRef<'_>) -> Self;
}

/// The value. One in a memtable is copied.
impl Answer for Bytes {
    fn of_memtable(value: &[u8]) -> Self {
        Self::copy_from_slice(value)
    }

    fn of_block(value: &ValueRef<'_>) -> Self {
        value.to_bytes()
    }
}

/// That there is one. Touches neither the value nor its reference count.
impl Answer for () {
    fn of_memtable(_: &[u8]) -> Self {}

    fn of_block(_: &ValueRef<'_>) -> Self {}
}
