//! The bytes of one commit of a call that writes more.

use std::cell::OnceCell;

use sievedb::Db;

/// Maximum bytes of a commit.
const BYTES_MAX: u64 = 4 << 20;

/// A commit takes at most this part of the limit of memtables, plus one entry.
const MEMTABLES_SHARE: u64 = 8;

/// Bytes that never exceed the limit: less than the share of the smallest memtables.
const SMALL_BYTES: u64 = 16 << 10;

/// The limit of a commit, which depends on the memory of the store: 4 MiB, or 1/8 of the limit of
/// memtables if that is less.
#[derive(Default)]
pub(crate) struct CommitLimit {
    /// Read when a call first writes more than [`SMALL_BYTES`].
    bytes_max: OnceCell<u64>,
}

impl CommitLimit {
    /// Returns `true` if `bytes` are too many for one commit to `db`.
    pub(crate) fn is_exceeded_by(&self, bytes: u64, db: &Db) -> bool {
        bytes > SMALL_BYTES && bytes > *self.bytes_max.get_or_init(|| read(db))
    }
}

fn read(db: &Db) -> u64 {
    BYTES_MAX.min(db.stats().memory.memtable_bytes_max / MEMTABLES_SHARE)
}
