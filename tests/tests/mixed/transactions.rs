//! Transactions, several at a time, and the conflicts that they must or may have.

use std::{collections::BTreeMap, fmt, ops::Bound};

use bytes::Bytes;
use sievedb::{Error, Isolation, Keyspace, Result, Savepoint, Transaction, TransactionOptions};
use sievedb_tests::model::{KeyRange, Name, shown};

use super::{
    model::{Change, Contents, Seen, Space, contains},
    own_writes::OwnWrites,
    reads::seen,
    steps::Place,
    story::Story,
};

/// A transaction, and what it must see.
pub(super) struct OpenTransaction {
    pub(super) transaction: Transaction,
    pub(super) isolation: Isolation,
    /// The store when it began.
    pub(super) contents: Contents,
    pub(super) now_ms: u64,
    pub(super) own: OwnWrites,
    savepoints: Vec<(Savepoint, OwnWrites)>,
    /// Keys on which the commit depends.
    pub(super) keys: Vec<(u64, Bytes)>,
    pub(super) ranges: Vec<(u64, KeyRange)>,
    pub(super) handles: BTreeMap<u64, Keyspace>,
    /// Number of [`Touch`]es before it.
    began: usize,
}

/// A write that transactions must notice.
#[derive(Debug, Clone)]
pub(super) enum Touch {
    Key(u64, Bytes),
    /// With the keys that it removed.
    Range(u64, KeyRange, Vec<Bytes>),
    Drop(u64),
}

/// Required result of the commit of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Conflict {
    None,
    May,
    Must,
}

impl Story {
    /// Notes writes for the open transactions.
    pub(super) fn touch(&mut self, changes: &[Change]) {
        if self.transactions.is_empty() {
            self.touches.clear();
            return;
        }
        let now_ms = self.now_ms();
        let now = self.history.now();
        let mut touches = Vec::new();
        for change in changes {
            let of = |name: &Name| now.space(name).map(|space| (space.id, space));
            let removed = |space: &Space, range: &KeyRange| {
                space.range(range, now_ms).map(|(key, _)| key.clone()).collect()
            };
            let touch = match change {
                Change::Put { keyspace, key, .. }
                | Change::Remove { keyspace, key }
                | Change::Merge { keyspace, key, .. } => {
                    of(keyspace).map(|(id, _)| Touch::Key(id, key.clone()))
                }
                Change::RemoveRange { keyspace, range } => of(keyspace)
                    .map(|(id, space)| Touch::Range(id, range.clone(), removed(space, range))),
                Change::Clear { keyspace } => of(keyspace).map(|(id, space)| {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let removed = removed(space, &all);
                    Touch::Range(id, all, removed)
                }),
                Change::Drop { keyspace } => of(keyspace).map(|(id, _)| Touch::Drop(id)),
                Change::Create { .. } | Change::Rename { .. } => None,
            };
            touches.extend(touch);
        }
        self.touches.extend(touches);
    }

    pub(super) fn begin(&mut self) {
        if self.transactions.len() == 3 {
            return;
        }
        let isolation = *self.lots.pick(&[Isolation::Serializable, Isolation::Snapshot]);
        self.note(|| format!("begin {isolation:?}"));
        if self.transactions.is_empty() {
            self.touches.clear();
        }
        let options = TransactionOptions::new().isolation(isolation);
        self.transactions.push(OpenTransaction {
            transaction: self.db().begin_with(options),
            isolation,
            contents: self.history.now().clone(),
            now_ms: self.now_ms(),
            own: OwnWrites::default(),
            savepoints: Vec::new(),
            keys: Vec::new(),
            ranges: Vec::new(),
            handles: self.handles.clone(),
            began: self.touches.len(),
        });
    }

    fn take_transaction(&mut self) -> Option<OpenTransaction> {
        if self.transactions.is_empty() {
            return None;
        }
        let at = self.lots.below(self.transactions.len());
        Some(self.transactions.swap_remove(at))
    }

    pub(super) fn roll_back(&mut self) {
        if let Some(open) = self.take_transaction() {
            self.note(|| "roll back".to_owned());
            open.transaction.rollback();
        }
    }

    /// Makes one call of an open transaction, or begins one.
    pub(super) fn step_transaction(&mut self) {
        let Some(mut open) = self.take_transaction() else { return self.begin() };
        let result = self.step(&mut open);
        match result {
            Ok(()) => self.transactions.push(open),
            Err(error) => {
                self.tolerate("transaction", &error);
                open.transaction.rollback();
            }
        }
    }

    fn step(&mut self, open: &mut OpenTransaction) -> Result<()> {
        let lot = self.lots.below(open.contents.spaces.len() + 1);
        let spaces = &open.contents.spaces;
        let first = || spaces.first_key_value().expect("every store has one");
        let (name, space) = spaces.iter().nth(lot).unwrap_or_else(first);
        let (name, space) = (name.clone(), space.clone());
        let handle = open.handles[&space.id].clone();
        // Another name now, or none.
        let is_dropped = self.history.now().of_id(space.id).is_none();
        let key = self.key();
        let call = *self.lots.pick(&[
            "get",
            "get",
            "get for update",
            "contains key",
            "get many",
            "range",
            "range",
            "first",
            "last",
            "ttl",
            "insert",
            "insert",
            "insert",
            "insert with ttl",
            "insert expiring at",
            "insert without ttl",
            "remove",
            "remove range",
            "remove prefix",
            "merge",
            "fetch update",
            "take",
            "fetch add",
            "expire at",
            "persist key",
            "set savepoint",
            "roll back to",
            "release",
        ]);
        self.note(|| format!("{call} {name} {} in a transaction", shown(&key)));
        let wanted = open.seen(&space, &key);
        let check = |got: Result<Option<Seen>>| -> Result<()> {
            match got {
                Err(Error::KeyspaceDropped { .. }) if is_dropped => Ok(()),
                got => {
                    let got = got?;
                    assert_eq!(got, wanted, "{call} {name} {} in a transaction", shown(&key));
                    assert!(!is_dropped, "a transaction reads the dropped keyspace {name}");
                    Ok(())
                }
            }
        };
        let place = Place { space: space.clone(), handle: handle.clone(), is_dropped };
        let tx = &mut open.transaction;
        match call {
            "get" => {
                check(seen(tx.get(&handle, &key)))?;
                open.note_read(space.id, key);
            }
            "get for update" => {
                check(seen(tx.get_for_update(&handle, &key)))?;
                open.keys.push((space.id, key));
            }
            "contains key" => {
                match tx.contains_key(&handle, &key) {
                    Err(Error::KeyspaceDropped { .. }) if is_dropped => {}
                    found => assert_eq!(found?, wanted.is_some(), "{name} {}", shown(&key)),
                }
                open.note_read(space.id, key);
            }
            "get many" => {
                let keys = [key, self.key(), self.key()];
                let wanted: Vec<_> = keys.iter().map(|key| open.seen(&space, key)).collect();
                match open.transaction.get_many(&handle, &keys) {
                    Err(Error::KeyspaceDropped { .. }) if is_dropped => {}
                    Err(Error::MergeFailed { .. }) => {
                        assert!(wanted.contains(&Some(Seen::MergeFails)));
                    }
                    got => {
                        let got = got?.into_iter().map(|value| value.map(Seen::Value));
                        assert!(got.eq(wanted), "get_many {name} {keys:?} in a transaction");
                    }
                }
                keys.into_iter().for_each(|key| open.note_read(space.id, key));
            }
            "range" if !is_dropped => self.range_of(open, &space, &handle)?,
            "insert" | "insert with ttl" | "insert expiring at" | "insert without ttl"
            | "remove" | "remove range" | "remove prefix" => {
                self.blind_step(open, &place, call, key)?;
            }
            "merge" | "fetch update" | "take" | "fetch add" | "expire at" | "persist key" => {
                self.dependent_step(open, &place, call, key)?;
            }
            "ttl" => Self::ttl_step(open, &place, key)?,
            "first" | "last" if !is_dropped => Self::end_step(open, &place, call == "first")?,
            "set savepoint" if open.savepoints.len() < 4 => {
                let savepoint = open.transaction.set_savepoint();
                open.savepoints.push((savepoint, open.own.clone()));
            }
            "roll back to" if !open.savepoints.is_empty() => {
                let at = self.lots.below(open.savepoints.len());
                open.transaction.rollback_to(&open.savepoints[at].0)?;
                let later = open.savepoints.split_off(at + 1);
                for (savepoint, _) in later {
                    let again = open.transaction.rollback_to(&savepoint);
                    assert!(matches!(again, Err(Error::NoSavepoint)), "{again:?}");
                }
                open.own = open.savepoints[at].1.clone();
            }
            "release" if !open.savepoints.is_empty() => {
                let at = self.lots.below(open.savepoints.len());
                let mut later = open.savepoints.split_off(at).into_iter();
                let (savepoint, _) = later.next().expect("it is below the length");
                open.transaction.release(savepoint)?;
                for (savepoint, _) in later {
                    let again = open.transaction.release(savepoint);
                    assert!(matches!(again, Err(Error::NoSavepoint)), "{again:?}");
                }
            }
            _ => {}
        }
        assert_eq!(open.transaction.len(), open.own.len(), "keys that a transaction writes");
        Ok(())
    }

    /// Reads some entries of a range in a transaction.
    fn range_of(
        &mut self,
        open: &mut OpenTransaction,
        space: &Space,
        handle: &Keyspace,
    ) -> Result<()> {
        let bounds = if self.lots.chance(1, 3) { self.key_range() } else { self.narrow_range() };
        self.note(|| format!("... the range {bounds:?}"));
        let wanted = open.range(space, &bounds);
        let steps = self.lots.below(8);
        let mut range = open.transaction.range(handle, bounds.clone());
        let mut left = 0..wanted.len();
        let (mut front, mut back, mut is_at_end, mut fails) = (None, None, false, false);
        for _ in 0..steps {
            let from_back = self.lots.chance(1, 3);
            let place = if is_at_end {
                None
            } else if from_back {
                left.next_back()
            } else {
                left.next()
            };
            let want = place.map(|place| wanted[place].clone());
            let read = if from_back { range.next_back() } else { range.next() };
            is_at_end |= want.is_none();
            match (read.transpose(), want) {
                (Err(Error::MergeFailed { .. }), _) if open.meets_failing(space, &bounds) => {
                    // Entries that are read ahead may fail, too.
                    fails = true;
                    break;
                }
                (read, want) => {
                    let read = read?.map(|(key, value)| (key, Seen::Value(value)));
                    assert_eq!(read, want, "a range in a transaction, back: {from_back}");
                    if let Some((key, _)) = want {
                        *(if from_back { &mut back } else { &mut front }) = Some(key);
                    }
                }
            }
        }
        drop(range);
        if open.isolation == Isolation::Serializable {
            let (start, end) = bounds;
            if is_at_end || fails {
                open.ranges.push((space.id, (start, end)));
            } else {
                if let Some(front) = front {
                    open.ranges.push((space.id, (start, Bound::Included(front))));
                }
                if let Some(back) = back {
                    open.ranges.push((space.id, (Bound::Included(back), end)));
                }
            }
        }
        Ok(())
    }

    pub(super) fn commit(&mut self) {
        let Some(mut open) = self.take_transaction() else { return };
        let expected = self.expected(&mut open);
        let is_dropped = |story: &Self, id: u64| story.history.now().of_id(id).is_none();
        let writes_to_dropped = open.own.ids().any(|id| is_dropped(self, id));
        let mut read = open.keys.iter().map(|(id, _)| id).chain(open.ranges.iter().map(|it| &it.0));
        let reads_dropped = read.any(|&id| is_dropped(self, id));
        let durability = self.durability();
        let changes = open.own.changes(self.history.now());
        self.note(|| {
            let texts: Vec<_> = changes.iter().map(Change::text).collect();
            format!("commit {durability:?}, {expected:?}: {}", texts.join("; "))
        });
        let began = self.disk.operations();
        let result = open.transaction.commit(durability);
        match result {
            Err(Error::Conflict { keyspace, key }) => {
                let place = format!("{keyspace} {}", shown(&key));
                assert!(expected >= Conflict::May, "a conflict without a reason: {place}");
                self.count("(conflict)");
            }
            Err(Error::KeyspaceDropped { .. }) => {
                assert!(writes_to_dropped || reads_dropped, "no keyspace was dropped");
            }
            result => {
                if result.is_ok() && open.own.len() > 0 {
                    assert!(expected <= Conflict::May, "no conflict");
                    assert!(!writes_to_dropped && !reads_dropped, "a keyspace was dropped");
                }
                if open.own.len() == 0 {
                    self.accept("commit", result);
                } else {
                    self.written(changes, durability, began, result);
                }
            }
        }
    }

    fn expected(&self, open: &mut OpenTransaction) -> Conflict {
        if open.own.len() == 0 {
            return Conflict::None;
        }
        if open.isolation == Isolation::Snapshot {
            open.keys.extend(open.own.keys());
            open.ranges.extend(open.own.ranges());
        }
        let touches = &self.touches[open.began..];
        touches.iter().map(|touch| open.conflict(touch)).max().unwrap_or(Conflict::None)
    }
}

impl OpenTransaction {
    /// Returns what the transaction sees of a key.
    pub(super) fn seen(&self, space: &Space, key: &Bytes) -> Option<Seen> {
        match self.own.get(space.id, key) {
            Some(own) => own.map(|(value, _)| Seen::Value(value.clone())),
            None => space.get(key, self.now_ms),
        }
    }

    pub(super) fn range(&self, space: &Space, bounds: &KeyRange) -> Vec<(Bytes, Seen)> {
        let stored = space.range(bounds, self.now_ms).map(|(key, seen)| (key.clone(), seen));
        let is_kept = |(key, _): &(Bytes, Seen)| self.own.get(space.id, key).is_none();
        let mut all: BTreeMap<_, _> = stored.filter(is_kept).collect();
        for (key, value) in self.own.of(space.id).filter(|(key, _)| contains(bounds, key)) {
            all.extend(value.map(|(value, _)| (key.clone(), Seen::Value(value.clone()))));
        }
        all.into_iter().collect()
    }

    /// Returns whether a scan of the range may meet a failing merge: entries are read ahead.
    pub(super) fn meets_failing(&self, space: &Space, bounds: &KeyRange) -> bool {
        let mut stored = space.range(bounds, self.now_ms);
        stored.any(|(key, seen)| seen == Seen::MergeFails && self.own.get(space.id, key).is_none())
    }

    pub(super) fn note_read(&mut self, id: u64, key: Bytes) {
        let is_own = self.own.get(id, &key).is_some();
        if !is_own && self.isolation == Isolation::Serializable {
            self.keys.push((id, key));
        }
    }

    fn depends_on(&self, id: u64, key: &Bytes) -> bool {
        self.keys.iter().any(|(of, other)| *of == id && other == key)
            || self.ranges.iter().any(|(of, range)| *of == id && contains(range, key))
    }

    fn conflict(&self, touch: &Touch) -> Conflict {
        match touch {
            Touch::Key(id, key) if self.depends_on(*id, key) => Conflict::Must,
            Touch::Range(id, _, keys) if keys.iter().any(|key| self.depends_on(*id, key)) => {
                Conflict::Must
            }
            Touch::Range(id, range, _) => {
                let has_key = self.keys.iter().any(|(of, key)| of == id && contains(range, key));
                let has_range = self.ranges.iter().any(|(of, _)| of == id);
                if has_key || has_range { Conflict::May } else { Conflict::None }
            }
            Touch::Drop(id) => {
                let of_keys = self.keys.iter().map(|(of, _)| of);
                let all = of_keys.chain(self.ranges.iter().map(|(of, _)| of));
                if all.copied().chain(self.own.ids()).any(|of| of == *id) {
                    Conflict::May
                } else {
                    Conflict::None
                }
            }
            Touch::Key(..) => Conflict::None,
        }
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {} writes", self.isolation, self.own.len())
    }
}
