//! The keyspace of this crate: entries by their index, and single records.

use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

use postcard::{ser_flavors::Size, serialize_with_flavor};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sievedb::{Db, Keyspace};

use crate::{Error, KEYSPACE, Result, purge::Postponed, series::Series};

/// The key of the name of the release series of openraft that has written the store.
const SERIES: &[u8] = b"line";

/// The key of the last vote.
pub(crate) const VOTE: &[u8] = b"vote";

/// The key of the id of the last entry that is known to be committed.
pub(crate) const COMMITTED: &[u8] = b"committed";

/// The key of the id of the last entry that was purged.
pub(crate) const PURGED: &[u8] = b"purged";

/// The key of [`Applied`].
pub(crate) const APPLIED: &[u8] = b"applied";

/// The key of the current snapshot, a [`Kept`].
pub(crate) const SNAPSHOT: &[u8] = b"snapshot";

/// The key of the snapshot whose installation has begun, a [`Kept`].
pub(crate) const INSTALLING: &[u8] = b"installing";

/// The first byte of the key of an entry. The other keys begin with another one.
const ENTRY: u8 = 0;

/// A snapshot in the directory of snapshots, with its metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept<M> {
    pub(crate) meta: M,
    /// The number of its directory.
    pub(crate) slot: u8,
}

/// Last entry and membership of the state machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Applied<I, M> {
    /// The id of the last entry applied.
    pub(crate) log_id: Option<I>,
    /// The last membership applied.
    pub(crate) membership: M,
}

impl<I, M: Default> Default for Applied<I, M> {
    fn default() -> Self {
        Self { log_id: None, membership: M::default() }
    }
}

/// The keyspace in a store.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) db: Db,
    pub(crate) keyspace: Keyspace,
    pub(crate) postponed: Postponed,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    pub(crate) fn open(db: &Db) -> Result<Self> {
        let keyspace = db.keyspace(KEYSPACE)?;
        Ok(Self { db: db.clone(), keyspace, postponed: Postponed::default() })
    }

    /// Checks that the series `S` has written the store, and records it in an empty one.
    ///
    /// # Errors
    ///
    /// [`Error::ReleaseSeries`] if another series has written it.
    pub(crate) fn check_series<S: Series>(&self) -> Result<()> {
        match self.read::<String>(SERIES)? {
            Some(name) if name == S::NAME => Ok(()),
            Some(name) => Err(Error::ReleaseSeries(name)),
            None if self.keyspace.iter().next_ref()?.is_none() => {
                self.keyspace.insert(SERIES, encode(&S::NAME)?)?;
                Ok(())
            }
            None => Err(Error::ReleaseSeries("unknown".to_owned())),
        }
    }

    /// Returns the record at `key`.
    pub(crate) fn read<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>> {
        let bytes = self.keyspace.get(key)?;
        Ok(bytes.map(|bytes| postcard::from_bytes(&bytes)).transpose()?)
    }
}

/// Encodes a record or an entry.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    Ok(postcard::to_stdvec(value)?)
}

/// Encodes the entry `index`, and checks that it can be decoded.
///
/// Decoding fails, or returns another entry, for types that depend on a self-describing encoding.
/// Compares lengths, because a map of equal content may have another order.
///
/// # Errors
///
/// [`Error::Entry`] if it cannot be decoded.
pub(crate) fn encode_entry<T: Serialize + DeserializeOwned>(
    index: u64,
    entry: &T,
) -> Result<Vec<u8>> {
    let checked = || {
        let bytes = postcard::to_stdvec(entry)?;
        let (decoded, rest) = postcard::take_from_bytes::<T>(&bytes)?;
        let length = serialize_with_flavor(&decoded, Size::default())?;
        if !rest.is_empty() || length != bytes.len() {
            return Err(postcard::Error::DeserializeBadEncoding);
        }
        Ok(bytes)
    };
    checked().map_err(|source| Error::Entry { index, source })
}

/// Returns the key of the entry `index`.
pub(crate) fn entry_key(index: u64) -> [u8; 9] {
    let mut key = [ENTRY; 9];
    key[1..].copy_from_slice(&index.to_be_bytes());
    key
}

/// Returns the keys of the entries whose indexes are in `range`.
pub(crate) fn entry_keys(range: &impl RangeBounds<u64>) -> (Bound<[u8; 9]>, Bound<[u8; 9]>) {
    let key = |bound: Bound<&u64>| bound.map(|&index| entry_key(index));
    let start = match key(range.start_bound()) {
        Bound::Unbounded => Bound::Included(entry_key(0)),
        start => start,
    };
    let end = match key(range.end_bound()) {
        Bound::Unbounded => Bound::Included(entry_key(u64::MAX)),
        end => end,
    };
    (start, end)
}
