//! Reads of the past of a keyspace.

use std::{fmt, iter::FusedIterator, mem, sync::Arc, time::SystemTime};

use sievedb_filter::hash::key_hash;
use sievedb_format::{SequenceNumber, Trailer};
use sievedb_sstable::{BlockCounts, ValueRef};

use crate::{
    Bytes, Keyspace, KeyspaceSnapshot, PointInTime, ReadOptions, Result,
    handle::Handle,
    handle_counts::HandleKind,
    history_length::HistoryStart,
    read::{lookup::Lookup, observer::Observer, tree::Tree, view::ReadView},
    resolve::{ReadPoint, is_operand},
};

/// A version of a key: its value from one write to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyVersion {
    /// The sequence number of the write, for [`Keyspace::snapshot_at`]. `None` if it is older than
    /// the history.
    pub sequence: Option<u64>,
    /// Time of the write, by the [store clock](crate::Db::store_time); `None` if unknown. Accurate
    /// to a second or 1 % of its age, whichever is larger. After a crash, it may be as early as the
    /// last flush.
    pub written_at: Option<SystemTime>,
    /// The value; `None` after a removal, and if it had expired before the history begins. For a
    /// merge operand, the result of the merge. Values below it count as expired as in
    /// [`PointInTime::Sequence`].
    pub value: Option<Bytes>,
    /// Time at which the value expires or expired; `None` if never, and for a merge operand.
    pub expires_at: Option<SystemTime>,
}

/// The versions of a key, the newest first. [`Keyspace::history`] returns it.
///
/// Reads the keyspace at the time of the call, and keeps its memtables and tables until it is
/// dropped. Ends after the first error.
pub struct KeyHistory {
    /// Declared before the handle: its memtables are freed before the store leaves its memory pool.
    /// `None` only during the drop.
    view: Option<ReadView>,
    tree: Arc<Tree>,
    open: Handle,
    key: Bytes,
    /// Upper bound of the sequence number of the next version; `None` at the end.
    next: Option<SequenceNumber>,
    /// Start of the history. Versions that had expired by then have no value.
    from: HistoryStart,
}

impl KeyHistory {
    fn new(keyspace: &Keyspace, key: &[u8]) -> Result<Self> {
        let store = keyspace.open_store().accept()?;
        let tree = Arc::clone(keyspace.tree());
        // Taken first: merges after the view may drop the listed versions.
        let view = tree.kept_view();
        tree.check()?;
        let visible = store.writer.visible();
        let start = store
            .history_start(&tree)
            .ok_or_else(|| store.not_in_history(&tree, visible.into()))?;
        let from = HistoryStart { sequence: start.sequence.max(view.cleared), ..start };
        Ok(Self {
            view: Some(ReadView::new(tree.id, view)),
            open: keyspace.handle().of_kind(HandleKind::Iterator),
            tree,
            key: Bytes::copy_from_slice(key),
            next: Some(visible),
            from,
        })
    }

    /// Returns the newest version up to `at`, and its sequence number.
    fn version(&self, at: SequenceNumber) -> Result<Option<(SequenceNumber, KeyVersion)>> {
        let store = self.open.accept()?;
        self.tree.check()?;
        let Some(view) = &self.view else { return Ok(None) };
        let counters = store.tables.counters.local();
        let hash = key_hash(&self.key, store.hash_seed);
        let cache_use = ReadOptions::default().cache_use();
        let clock = store.versions.clock();
        // A value does not expire by time here: it had the value when it was written. The exception
        // is a value before the history, which a compaction drops.
        let point = ReadPoint::at_time(at, self.from.clock_ms);
        let lookup = Lookup { key: &self.key, hash, at: point, clock, cache_use };
        let mut newest = NewestVersion::default();
        let found = lookup.find(view, counters, &mut newest);
        // The value below the operands may have expired before: they are merged again below.
        let is_merged = newest.trailer.is_some_and(is_operand) && view.has_expiry();
        let mut value = if is_merged { None } else { found? };
        let cover = view.newest_cover(&self.key, at, 0);
        let written = newest.trailer.map(Trailer::sequence);
        let Some(sequence) = written.max((cover > 0).then_some(cover)) else { return Ok(None) };
        // A compaction sets the number of a version before the history to 0.
        let before = sequence.checked_sub(1);
        let time_of = |before| store.versions.with_times(|times| times.time_of(before));
        let written_ms = before.and_then(time_of);
        if is_merged {
            let clock_ms = written_ms.unwrap_or(0).max(self.from.clock_ms);
            let at = ReadPoint::at_time(sequence, clock_ms);
            value = Lookup { at, ..lookup }.find(view, counters, &mut newest)?;
        }
        let version = KeyVersion {
            sequence: (sequence > self.from.sequence).then_some(sequence),
            written_at: written_ms.and_then(PointInTime::of_ms),
            expires_at: newest.expiry_ms.filter(|_| value.is_some()).and_then(PointInTime::of_ms),
            value,
        };
        Ok(Some((sequence, version)))
    }
}

impl Iterator for KeyHistory {
    type Item = Result<KeyVersion>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next.take()?;
        let (sequence, version) = match self.version(at) {
            Ok(found) => found?,
            Err(error) => return Some(Err(error)),
        };
        debug_assert!(sequence <= at, "versions come newest first");
        if version.sequence.is_some() {
            self.next = Some(sequence - 1);
        } else if version.value.is_none() {
            // Compactions determine whether a removal before the history is still stored.
            return None;
        }
        Some(Ok(version))
    }
}

impl FusedIterator for KeyHistory {}

impl Drop for KeyHistory {
    fn drop(&mut self) {
        if self.open.store().is_forked() {
            // A drop of its tables may take a lock held by a thread of the parent.
            mem::forget(self.view.take());
        }
    }
}

impl fmt::Debug for KeyHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, next, from, .. } = self;
        f.debug_struct("KeyHistory")
            .field("key", key)
            .field("next", next)
            .field("from", from)
            .finish_non_exhaustive()
    }
}

/// Records the newest version that a lookup finds.
#[derive(Debug, Default)]
struct NewestVersion {
    trailer: Option<Trailer>,
    expiry_ms: Option<u64>,
}

impl Observer<Bytes> for NewestVersion {
    type Blocks = BlockCounts;

    fn value_in_memtable(&mut self, value: &[u8]) -> Bytes {
        Bytes::copy_from_slice(value)
    }

    fn value_in_block(&mut self, value: &ValueRef<'_>) -> Bytes {
        value.to_bytes()
    }

    fn expires(&mut self, expiry_ms: Option<u64>) {
        self.expiry_ms = expiry_ms;
    }

    fn found_in_memtable(&mut self, _: usize, trailer: Trailer, _: &[u8]) {
        self.trailer = self.trailer.max(Some(trailer));
    }

    fn found_in_table(&mut self, _: usize, trailer: Trailer, _: &ValueRef<'_>) {
        self.trailer = self.trailer.max(Some(trailer));
    }
}

/// The past, in a keyspace with a [history](crate::KeyspaceOptions::keep_history).
impl Keyspace {
    /// Returns a snapshot of the keyspace at a [`PointInTime`]: a sequence number or a
    /// [`SystemTime`].
    ///
    /// Costs a [snapshot](crate::Db::snapshot), and a check of each keyspace. While the snapshot
    /// exists, the versions visible to it are kept, even after they leave the history.
    ///
    /// # Errors
    ///
    /// [`Error::NotInHistory`](crate::Error::NotInHistory),
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped),
    /// [`Error::Closed`](crate::Error::Closed), [`Error::ForkedChild`](crate::Error::ForkedChild).
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// use sievedb::{Db, HistoryLength, KeyspaceOptions};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let hour = HistoryLength::Time(Duration::from_secs(3600));
    /// let prices = db.keyspace_with("prices", &KeyspaceOptions::new().keep_history(hour))?;
    /// prices.insert("tea", "3")?;
    /// let monday = prices.snapshot_at(SystemTime::now())?;
    /// prices.remove("tea")?;
    /// assert_eq!(monday.get("tea")?, Some("3".into()));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn snapshot_at(&self, point: impl Into<PointInTime>) -> Result<KeyspaceSnapshot> {
        KeyspaceSnapshot::of_past(self, point.into())
    }

    /// Returns the versions of `key`, the newest first, down to the version at the beginning of the
    /// history. Each write of a batch to the key is a version, and so is the removal of an absent
    /// key. A transaction writes one.
    ///
    /// Each version costs a lookup. A version that is a merge operand also applies all older
    /// operands.
    ///
    /// # Errors
    ///
    /// [`Error::NotInHistory`](crate::Error::NotInHistory) in a keyspace without a history,
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped),
    /// [`Error::Closed`](crate::Error::Closed), [`Error::ForkedChild`](crate::Error::ForkedChild).
    /// The items: errors of [`get`](Self::get).
    ///
    /// ```
    /// use sievedb::{Db, HistoryLength, KeyspaceOptions};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path())?;
    /// let options = KeyspaceOptions::new().keep_history(HistoryLength::Sequences(1000));
    /// let prices = db.keyspace_with("prices", &options)?;
    /// prices.insert("tea", "3")?;
    /// prices.insert("tea", "4")?;
    /// prices.remove("tea")?;
    /// let values: Result<Vec<_>, _> =
    ///     prices.history("tea")?.map(|version| version.map(|it| it.value)).collect();
    /// assert_eq!(values?, [None, Some("4".into()), Some("3".into())]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<KeyHistory> {
        KeyHistory::new(self, key.as_ref())
    }
}

#[cfg(all(test, target_os = "linux", not(any(miri, feature = "shuttle"))))]
mod tests {
    use crate::{HistoryLength, KeyspaceOptions, Options, fs::MemoryFs};

    use super::*;

    #[test]
    fn a_history_dropped_in_a_forked_child_leaves_its_tables() {
        let fs = Arc::new(MemoryFs::new());
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
        let db = options.open("db").expect("a new store");
        let keyspace = KeyspaceOptions::new().keep_history(HistoryLength::Sequences(10));
        let prices = db.keyspace_with("prices", &keyspace).expect("a new keyspace");
        prices.insert("tea", "3").expect("there is room");
        db.flush().expect("there is room");
        let history = prices.history("tea").expect("it has a history");
        db.drop_keyspace("prices").expect("it exists");
        drop(prices);
        let tables = || fs.contents().keys().filter(|name| name.ends_with(".sst")).count();
        let store = db.store();
        store.unlink_last();
        assert_eq!(tables(), 1, "the history needs it");
        store.gate.set_forked(true);
        drop(history);
        store.gate.set_forked(false);
        store.unlink_last();
        assert_eq!(tables(), 1, "the parent may need it");
    }
}
