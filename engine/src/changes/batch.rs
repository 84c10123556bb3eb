//! A batch of the change stream.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use sievedb_format::{Corruption, Kind, SequenceNumber, expiry::split_expiry};

use super::names::Names;
use crate::{
    PointInTime,
    wal::{batch::Entry, tail::TailBatch},
};

/// The changes of one committed batch, transaction or single write. They became visible together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeBatch {
    first: SequenceNumber,
    last: SequenceNumber,
    pub(super) changes: Vec<Change>,
}

/// A change of a key, of a range of keys, or of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Sequence number of the change. Those of a batch ascend.
    pub sequence: u64,
    /// Number of the keyspace, as in [`KeyspaceId::number`](crate::KeyspaceId::number): never used
    /// for another keyspace of this store.
    pub keyspace: u64,
    pub(super) name: Option<Arc<str>>,
    /// The change itself.
    pub kind: ChangeKind,
    /// The value of the key before the batch, with
    /// [`ChangesOptions::old_values`](super::ChangesOptions::old_values).
    pub old_value: OldValue,
}

/// Kind of a [`Change`], with its key and value. Keys and values share the memory of their batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The key has this value, until `expires_at` if that is set. The expiry is not a change.
    Insert {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// Time at which the value expires, by the store clock; `None` if never.
        expires_at: Option<SystemTime>,
    },
    /// The key was removed. It may have been absent.
    Remove {
        /// The key.
        key: Bytes,
    },
    /// The merge operator of the keyspace applies `operand` to the value of the key.
    Merge {
        /// The key.
        key: Bytes,
        /// The operand.
        operand: Bytes,
    },
    /// The keys from `start` on, below `end`, were removed.
    RemoveRange {
        /// The first removed key.
        start: Bytes,
        /// The first key that was not removed; `None` for all keys from `start` on.
        end: Option<Bytes>,
    },
    /// All keys of the keyspace were removed.
    Clear,
    /// Tables were [ingested](crate::Keyspace::ingest) into the keyspace, or the ingest failed or
    /// was interrupted by a crash. The stream does not have the entries: copy the keyspace again
    /// from a [snapshot](crate::Db::snapshot).
    Ingest,
    /// The keyspace was created with this name.
    CreateKeyspace {
        /// The name.
        name: Arc<str>,
    },
    /// The keyspace was dropped with all its keys.
    DropKeyspace,
    /// The keyspace has this name from now on.
    RenameKeyspace {
        /// The new name.
        name: Arc<str>,
    },
}

/// The value of a key before a batch. One that expired after the write before the batch still
/// counts, and so may one that expired shortly before that write: see
/// [`PointInTime::Sequence`](crate::PointInTime::Sequence).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OldValue {
    /// The value was not looked up, or is older than the history of the keyspace.
    #[default]
    Unknown,
    /// The key was absent.
    Absent,
    /// The key had this value.
    Value(Bytes),
}

impl ChangeBatch {
    /// Decodes a batch of the log, and applies its changes of keyspaces to `names`.
    ///
    /// # Errors
    ///
    /// [`Corruption`] if an entry breaks the format.
    pub(super) fn decode(tail: &TailBatch, names: &mut Names) -> Result<Self, Corruption> {
        let payload = tail.batch.payload();
        let mut changes = Vec::new();
        for (sequence, entry) in (tail.first..).zip(&tail.batch) {
            let entry = entry?;
            let (keyspace, old_value) = (entry.keyspace(), OldValue::Unknown);
            let bytes = |part: &[u8]| payload.slice_ref(part);
            let kind = match entry {
                Entry::Point { kind, key, value, .. } => point(kind, bytes(key), value)?,
                Entry::RemoveRange { start, end, .. } => {
                    let end = (!end.is_empty()).then(|| bytes(end));
                    ChangeKind::RemoveRange { start: bytes(start), end }
                }
                Entry::CreateKeyspace { name, .. } => {
                    ChangeKind::CreateKeyspace { name: names.set(keyspace, name) }
                }
                Entry::DropKeyspace { .. } => ChangeKind::DropKeyspace,
                Entry::ClearKeyspace { .. } => ChangeKind::Clear,
                Entry::Ingest { .. } => ChangeKind::Ingest,
                Entry::RenameKeyspace { name, .. } => {
                    ChangeKind::RenameKeyspace { name: names.set(keyspace, name) }
                }
                Entry::Ignored { .. } => continue,
            };
            let name = names.get(keyspace);
            if kind == ChangeKind::DropKeyspace {
                names.remove(keyspace);
            }
            changes.push(Change { sequence, keyspace, name, kind, old_value });
        }
        Ok(Self { first: tail.first, last: tail.last, changes })
    }

    /// Returns the sequence number of its first entry.
    #[must_use]
    pub const fn first_sequence(&self) -> u64 {
        self.first
    }

    /// Returns the sequence number of its last entry, after which a stream resumes with the next
    /// batch.
    #[must_use]
    pub const fn last_sequence(&self) -> u64 {
        self.last
    }

    /// Returns the changes, in the order of their sequence numbers. Later changes of a key take
    /// precedence. Empty if this release does not support any of their kinds.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }
}

impl IntoIterator for ChangeBatch {
    type Item = Change;
    type IntoIter = std::vec::IntoIter<Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.changes.into_iter()
    }
}

impl Change {
    /// Returns the name of the keyspace at the change; for a rename, the new name.
    ///
    /// `None` if the keyspace was created before the beginning of the stream, and dropped or
    /// renamed between that and the call of [`Db::changes`](crate::Db::changes). The
    /// [number](Self::keyspace) is always known.
    #[must_use]
    pub fn keyspace_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl ChangeKind {
    /// Returns the key of a change of one key.
    #[must_use]
    pub const fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Insert { key, .. } | Self::Remove { key } | Self::Merge { key, .. } => Some(key),
            _ => None,
        }
    }
}

fn point(kind: Kind, key: Bytes, value: Bytes) -> Result<ChangeKind, Corruption> {
    Ok(match kind {
        Kind::Put => ChangeKind::Insert { key, value, expires_at: None },
        Kind::PutWithExpiry => {
            let (expiry_ms, plain) = split_expiry(&value)?;
            let (expires_at, value) = (PointInTime::of_ms(expiry_ms), value.slice_ref(plain));
            ChangeKind::Insert { key, value, expires_at }
        }
        Kind::Tombstone => ChangeKind::Remove { key },
        Kind::Merge => ChangeKind::Merge { key, operand: value },
        Kind::BlobReference | Kind::RangeTombstone => {
            let what = "kind of an entry";
            return Err(Corruption::Unsupported { what, value: kind as u64 });
        }
    })
}
