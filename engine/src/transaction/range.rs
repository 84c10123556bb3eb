//! Iterators of a transaction: a snapshot under the transaction's own writes.

use std::{
    cmp::Ordering,
    collections::{VecDeque, btree_map},
    fmt,
    iter::FusedIterator,
    ops::{Bound, RangeBounds},
};

use bytes::Bytes;

use super::{
    Transaction, TransactionKeys,
    own_writes::{OwnValue, TreeWrites},
};
use crate::{
    Error, Keyspace, Range, Result,
    iter::bounds::KeyBounds,
    iter::range::End,
    reader::Reader,
    resolve::ReadPoint,
    validation::read_set::{RangeId, ReadSet},
};

/// Iterator over keys and values as a [`Transaction`] sees them, ascending from the front and
/// descending from the back.
///
/// A serializable transaction depends on the part of the range that the iterator has read, from
/// each end. The commit fails if another write changes, removes or adds a key in it. Stop early to
/// depend on less. Ranges that the transaction has removed are not read, but the commit depends on
/// them, too. After an error the iterator is at its end.
pub struct TransactionRange<'t> {
    base: Side<Stored, (Bytes, Bytes)>,
    own: Side<OwnRange<'t>, (Bytes, Option<Bytes>)>,
    /// All own writes to the keyspace, if any.
    written: Option<&'t TreeWrites>,
    read: Read<'t>,
}

/// The own writes within the bounds; `None` without any.
type OwnRange<'t> = Option<btree_map::Range<'t, Bytes, Option<OwnValue>>>;

/// The entries of the snapshot, without ranges that the transaction has removed.
struct Stored {
    /// Parts between removed ranges. A part is opened when an end reaches it.
    gaps: VecDeque<KeyBounds>,
    front: Option<Range>,
    /// `None` while both ends are in one part.
    back: Option<Range>,
    /// `None` without removed ranges.
    keyspace: Option<Keyspace>,
    snapshot: ReadPoint,
    /// Entries have empty values.
    keys_only: bool,
}

/// A sorted source with the next entry of each end.
struct Side<S, E> {
    source: S,
    front: Option<E>,
    back: Option<E>,
}

/// The part of the range that was read.
struct Read<'t> {
    transaction: &'t Transaction,
    /// `None` if reads are not tracked.
    id: Option<RangeId>,
    bounds: KeyBounds,
    /// Last key from the front, and from the back.
    front: Option<Bytes>,
    back: Option<Bytes>,
    is_at_end: bool,
}

impl<S, E> Side<S, E> {
    fn new(source: S) -> Self {
        Self { source, front: None, back: None }
    }

    /// Returns the next entry of `end` without consuming it.
    fn peek(
        &mut self,
        end: End,
        step: impl FnOnce(&mut S) -> Option<Result<E>>,
    ) -> Result<Option<&E>> {
        let (near, far) = match end {
            End::Front => (&mut self.front, &mut self.back),
            End::Back => (&mut self.back, &mut self.front),
        };
        if near.is_none() {
            // At the end of the source, only the entry peeked by the other end is left.
            *near = match step(&mut self.source) {
                Some(entry) => Some(entry?),
                None => far.take(),
            };
        }
        Ok(near.as_ref())
    }

    fn take(&mut self, end: End) -> Option<E> {
        match end {
            End::Front => self.front.take(),
            End::Back => self.back.take(),
        }
    }
}

impl Stored {
    fn new(transaction: &Transaction, keyspace: &Keyspace, bounds: &KeyBounds) -> Self {
        let snapshot = transaction.held.read_point();
        match transaction.writes.removed(keyspace.tree()) {
            None => {
                let range = transaction.reader(keyspace).range(bounds.clone());
                Self { front: Some(range), ..Self::empty(snapshot) }
            }
            Some(removed) => {
                let (gaps, keyspace) = (removed.gaps(bounds), Some(keyspace.clone()));
                Self { gaps, keyspace, ..Self::empty(snapshot) }
            }
        }
    }

    fn empty(snapshot: ReadPoint) -> Self {
        let (gaps, front, back, keyspace) = (VecDeque::new(), None, None, None);
        Self { gaps, front, back, keyspace, snapshot, keys_only: false }
    }

    fn open(&self, bounds: KeyBounds) -> Range {
        let keyspace = self.keyspace.as_ref().expect("without removed ranges there is one part");
        let reader = Reader { snapshot: Some(self.snapshot), ..keyspace.reader() };
        let mut range = reader.range(bounds);
        if self.keys_only {
            range.set_keys_only();
        }
        range
    }

    /// Returns the next entry of `end`. May omit an overwritten key.
    fn next(
        &mut self,
        end: End,
        is_overwritten: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<(Bytes, Bytes)>> {
        let keys_only = self.keys_only;
        let step = |range: &mut Range| {
            loop {
                let item = match end {
                    _ if keys_only => range.key(end).map(|key| Ok((key?, Bytes::new()))),
                    End::Front => range.next(),
                    End::Back => range.next_back(),
                };
                match &item {
                    // The operands of an overwritten key are not needed.
                    Some(Err(Error::MergeFailed { key, .. })) if is_overwritten(key) => {
                        range.resume();
                    }
                    _ => return item,
                }
            }
        };
        loop {
            let near = match end {
                End::Front => &mut self.front,
                End::Back => &mut self.back,
            };
            if let Some(item) = near.as_mut().and_then(step) {
                return Some(item);
            }
            let gap = match end {
                End::Front => self.gaps.pop_front(),
                End::Back => self.gaps.pop_back(),
            };
            let opened = gap.map(|bounds| self.open(bounds));
            let (near, far) = match end {
                End::Front => (&mut self.front, &mut self.back),
                End::Back => (&mut self.back, &mut self.front),
            };
            if opened.is_none() {
                // The other end is in the last part.
                return far.as_mut().and_then(step);
            }
            *near = opened;
        }
    }
}

impl<'t> TransactionRange<'t> {
    fn new(transaction: &'t Transaction, keyspace: &Keyspace, bounds: KeyBounds) -> Self {
        let opened = transaction.accept(keyspace).map(drop);
        let id = match opened.and_then(|()| transaction.begin_range(keyspace, &bounds)) {
            Ok(id) => id,
            Err(error) => return Self::refused(transaction, error),
        };
        let base = Stored::new(transaction, keyspace, &bounds);
        let is_empty = bounds.is_empty();
        let own = (!is_empty).then(|| transaction.writes.range(keyspace.tree(), &bounds)).flatten();
        let (front, back, is_at_end) = (None, None, false);
        let read = Read { transaction, id, bounds, front, back, is_at_end };
        let written = transaction.writes.of(keyspace.tree());
        Self { base: Side::new(base), own: Side::new(own), written, read }
    }

    fn refused(transaction: &'t Transaction, error: Error) -> Self {
        let refused = Some(Range::refused(error));
        let base = Stored { front: refused, ..Stored::empty(transaction.held.read_point()) };
        let bounds = KeyBounds::ALL;
        let (front, back, is_at_end) = (None, None, false);
        let read = Read { transaction, id: None, bounds, front, back, is_at_end };
        Self { base: Side::new(base), own: Side::new(None), written: None, read }
    }

    /// Returns an iterator over the keys. Reads no values of the snapshot, and applies no merge
    /// operands.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("a 1", "stored")?;
    /// let mut transaction = db.begin();
    /// let keys = transaction.prefix(&db, "a").keys().collect::<Result<Vec<_>, _>>()?;
    /// for key in keys {
    ///     transaction.remove(&db, key)?;
    /// }
    /// assert!(transaction.iter(&db).is_empty()?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn keys(self) -> TransactionKeys<'t> {
        TransactionKeys::new(self)
    }

    /// Returns `true` if the range has no key. Reads no value. The transaction depends on the keys
    /// up to the first one.
    ///
    /// # Errors
    ///
    /// Errors of the iterator.
    pub fn is_empty(mut self) -> Result<bool> {
        self.set_keys_only();
        Ok(self.step(End::Front)?.is_none())
    }

    pub(super) fn set_keys_only(&mut self) {
        let stored = &mut self.base.source;
        stored.keys_only = true;
        stored.front.iter_mut().chain(&mut stored.back).for_each(Range::set_keys_only);
    }

    /// Returns the next entry of `end`.
    fn step(&mut self, end: End) -> Result<Option<(Bytes, Bytes)>> {
        while !self.read.is_at_end {
            // Own entries follow the last stored one, which checks no more.
            self.read.transaction.open.accept()?;
            let written = self.written;
            let is_overwritten = |key: &[u8]| written.is_some_and(|it| it.get(key).is_some());
            let base = self.base.peek(end, |stored| stored.next(end, is_overwritten))?;
            let own = self.own.peek(end, |range| {
                let range = range.as_mut()?;
                let next = match end {
                    End::Front => range.next(),
                    End::Back => range.next_back(),
                };
                let bytes = |value: &OwnValue| value.bytes.clone();
                next.map(|(key, value)| Ok((key.clone(), value.as_ref().map(bytes))))
            })?;
            let order = match (base, own) {
                (None, None) => {
                    self.read.is_at_end = true;
                    break;
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((base, _)), Some((own, _))) => match end {
                    End::Front => base.cmp(own),
                    End::Back => own.cmp(base),
                },
            };
            let found = match order {
                Ordering::Less => self.base.take(end),
                Ordering::Equal | Ordering::Greater => {
                    if order == Ordering::Equal {
                        self.base.take(end);
                    }
                    // A removal hides the entry of the snapshot.
                    self.own.take(end).and_then(|(key, value)| Some((key, value?)))
                }
            };
            if let Some((key, value)) = found {
                self.read.note(end, &key);
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }

    fn item(&mut self, end: End) -> Option<Result<(Bytes, Bytes)>> {
        let item = self.step(end);
        if item.is_err() {
            self.read.is_at_end = true;
        }
        item.transpose()
    }
}

impl Read<'_> {
    fn note(&mut self, end: End, key: &Bytes) {
        if self.id.is_some() {
            let last = match end {
                End::Front => &mut self.front,
                End::Back => &mut self.back,
            };
            *last = Some(key.clone());
        }
    }

    /// Returns the parts that were read: at most one from each end.
    fn parts(&self) -> [Option<KeyBounds>; 2] {
        if self.is_at_end {
            return [Some(self.bounds.clone()), None];
        }
        // Copied: a key may be a slice of a whole block.
        let bound = |key: &Bytes| Bound::Included(Bytes::copy_from_slice(key));
        let start = || self.bounds.start.clone();
        let end = || self.bounds.end.clone();
        let front = self.front.as_ref().map(|key| KeyBounds { start: start(), end: bound(key) });
        let back = self.back.as_ref().map(|key| KeyBounds { start: bound(key), end: end() });
        [front, back]
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.transaction.end_range(id, self.parts());
        }
    }
}

impl Transaction {
    /// Returns all entries of `keyspace`: ascending from the front, descending from the back.
    ///
    /// Borrows the transaction: drop the iterator before the next write. An error of the call, such
    /// as [`Error::ForeignKeyspace`] or [`Error::TransactionTooLarge`], is the first item.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Db::open(dir.path())?;
    /// db.insert("b", "stored")?;
    /// let mut transaction = db.begin();
    /// transaction.insert(&db, "a", "own")?;
    /// let entries = transaction.iter(&db).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(entries, [("a".into(), "own".into()), ("b".into(), "stored".into())]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self, keyspace: impl AsRef<Keyspace>) -> TransactionRange<'_> {
        TransactionRange::new(self, keyspace.as_ref(), KeyBounds::ALL)
    }

    /// Returns the entries of `keyspace` whose keys are within `bounds`. As [`iter`](Self::iter).
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: impl AsRef<Keyspace>,
        bounds: impl RangeBounds<K>,
    ) -> TransactionRange<'_> {
        TransactionRange::new(self, keyspace.as_ref(), KeyBounds::new(&bounds))
    }

    /// Returns the entries of `keyspace` whose keys have this prefix. As [`iter`](Self::iter).
    #[must_use]
    pub fn prefix(
        &self,
        keyspace: impl AsRef<Keyspace>,
        prefix: impl AsRef<[u8]>,
    ) -> TransactionRange<'_> {
        TransactionRange::new(self, keyspace.as_ref(), KeyBounds::prefix(prefix.as_ref()))
    }

    /// Adds the whole range to the read set: if its iterator is never dropped, all of it counts as
    /// read.
    fn begin_range(&self, keyspace: &Keyspace, bounds: &KeyBounds) -> Result<Option<RangeId>> {
        if !self.tracks_reads() {
            return Ok(None);
        }
        let mut tracked = self.tracked.lock();
        // An estimate: the keys of the read parts may be longer than the bounds.
        let bytes = ReadSet::range_bytes() + bounds.bytes();
        tracked.take_bytes(bytes, self.bytes_max, &self.charge)?;
        Ok(Some(tracked.set.add_range(keyspace.tree(), bounds.clone())))
    }

    fn end_range(&self, id: RangeId, parts: [Option<KeyBounds>; 2]) {
        let mut tracked = self.tracked.lock();
        let (freed, added) = tracked.set.set_range(id, parts);
        // Never fails: there are few keys, and the next call fails instead.
        tracked.bytes = tracked.bytes + added - freed;
        self.charge.grow(added);
        self.charge.shrink(freed);
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(End::Front)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(End::Back)
    }
}

impl FusedIterator for TransactionRange<'_> {}

impl fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionRange")
            .field("bounds", &self.read.bounds)
            .finish_non_exhaustive()
    }
}
