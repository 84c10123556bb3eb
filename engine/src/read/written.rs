//! Whether a key was written after a reader's sequence number, for conditions of writes.

use sievedb_format::{InternalKey, SEQUENCE_MAX, SequenceNumber};

use super::view::KeptView;

/// The time of a read: what the reader saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMark {
    pub(crate) sequence: SequenceNumber,
    /// Number of the version whose tables were read.
    pub(crate) version: u64,
}

/// A key, and the sequence number at which it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadKey<'a> {
    pub(crate) key: &'a [u8],
    /// Hash of the key, with the seed of the store.
    pub(crate) hash: u64,
    /// Later versions change the key.
    pub(crate) after: SequenceNumber,
}

impl ReadKey<'_> {
    /// Returns whether memtables have a later version of the key. Reads no file.
    pub(crate) fn is_written_in_memtables(self, view: &KeptView) -> bool {
        let target = InternalKey::seek(self.key, SEQUENCE_MAX);
        let newer = view.placed_memtables().filter(|placed| placed.last_sequence() > self.after);
        for placed in newer {
            let memtable = &placed.memtable;
            let cover = memtable.range_tombstones().newest_cover(self.key, SEQUENCE_MAX);
            if cover.is_some_and(|cover| cover > self.after) {
                return true;
            }
            if !memtable.may_contain_hash(self.hash) {
                continue;
            }
            let newest = memtable.get_with(target, |trailer, _| trailer.sequence());
            if newest.is_some_and(|newest| newest > self.after) {
                return true;
            }
        }
        false
    }
}
