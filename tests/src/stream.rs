//! A reader of the change stream, whose copy of the store must stay right.

use std::{collections::BTreeMap, ops::Bound};

use sievedb::{
    ChangeBatch, Db, Error,
    changes::{Change as StreamChange, ChangeKind},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    model::{Change, Model, Name},
    observe::keyspace,
};

/// A copy of a store that is kept right by its change stream.
#[derive(Debug, Clone)]
pub struct Follower {
    model: Model,
    /// Names of the keyspaces by number.
    names: BTreeMap<u64, Name>,
}

impl Follower {
    /// Begins with the contents of a store.
    ///
    /// # Errors
    ///
    /// As [`Db::open_keyspace`].
    pub fn new(db: &Db, model: Model) -> Result<Self, Error> {
        let mut names = BTreeMap::new();
        for name in db.keyspaces()? {
            names.insert(keyspace(db, &name)?.id().number, Name::from(name));
        }
        Ok(Self { model, names })
    }

    /// Returns the contents of the copy.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Applies a batch.
    ///
    /// # Errors
    ///
    /// If it contradicts the batches before.
    pub fn apply(&mut self, batch: &ChangeBatch) -> Result<(), String> {
        let sequences = batch.changes().iter().map(|change| change.sequence);
        if !sequences.eq(batch.first_sequence()..=batch.last_sequence()) {
            return Err(format!("wrong sequence numbers: {batch:?}"));
        }
        batch.changes().iter().try_for_each(|change| self.change(change))
    }

    fn change(&mut self, change: &StreamChange) -> Result<(), String> {
        if let ChangeKind::CreateKeyspace { name } = &change.kind {
            let keyspace = Name::clone(name);
            self.names.insert(change.keyspace, Name::clone(name));
            self.model.apply(&Change::Create { keyspace });
            return Ok(());
        }
        let name = self.names.get(&change.keyspace);
        let keyspace = name.ok_or_else(|| format!("an unknown keyspace: {change:?}"))?.clone();
        let mut known = &keyspace;
        let (apply, renamed);
        match &change.kind {
            ChangeKind::Insert { key, value, expires_at } => {
                let (key, value) = (key.clone(), value.clone());
                apply = match expires_at {
                    None => Change::Put { keyspace: keyspace.clone(), key, value },
                    Some(_) => {
                        let (keyspace, by_default) = (keyspace.clone(), false);
                        Change::PutExpiring { keyspace, key, value, by_default }
                    }
                };
            }
            ChangeKind::Remove { key } => {
                apply = Change::Remove { keyspace: keyspace.clone(), key: key.clone() };
            }
            ChangeKind::Merge { key, operand } => {
                let (key, operand) = (key.clone(), operand.clone());
                apply = Change::Merge { keyspace: keyspace.clone(), key, operand };
            }
            ChangeKind::RemoveRange { start, end } => {
                let end = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let range = (Bound::Included(start.clone()), end);
                apply = Change::RemoveRange { keyspace: keyspace.clone(), range };
            }
            ChangeKind::Clear => apply = Change::Clear { keyspace: keyspace.clone() },
            ChangeKind::DropKeyspace => apply = Change::Drop { keyspace: keyspace.clone() },
            ChangeKind::RenameKeyspace { name } => {
                renamed = Name::clone(name);
                self.names.insert(change.keyspace, Name::clone(name));
                known = &renamed;
                apply = Change::Rename { keyspace: keyspace.clone(), to: Name::clone(name) };
            }
            other => return Err(format!("an unknown change: {other:?}")),
        }
        if change.keyspace_name().is_some_and(|name| name != &**known) {
            return Err(format!("the keyspace is named {known}: {change:?}"));
        }
        self.model.apply(&apply);
        Ok(())
    }
}

/// A batch that a stream returned, with a digest of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    first: u64,
    last: u64,
    digest: u64,
}

impl From<&ChangeBatch> for Delivered {
    fn from(batch: &ChangeBatch) -> Self {
        let kinds = batch.changes().iter().map(|change| (change.keyspace, &change.kind));
        let text = format!("{:?}", kinds.collect::<Vec<_>>());
        let (first, last) = (batch.first_sequence(), batch.last_sequence());
        Self { first, last, digest: xxh3_64(text.as_bytes()) }
    }
}

/// Changes that a reader of the stream of a store has received.
#[derive(Debug, Clone)]
pub struct Received {
    /// Where the stream began, with the contents of the store.
    after: u64,
    base: Follower,
    /// Number of disk operations then.
    began: usize,
    /// Batches, each with the number of disk operations when it was returned.
    batches: Vec<(usize, Delivered)>,
}

impl Received {
    /// Begins after the sequence number `after`, at which the store had the contents of `base`, at
    /// disk operation `began`.
    #[must_use]
    pub fn new(after: u64, base: Follower, began: usize) -> Self {
        Self { after, base, began, batches: Vec::new() }
    }

    /// Reads the stream up to its present end. `at` is the present number of disk operations.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn read(&mut self, db: &Db, at: impl Fn() -> usize) -> Result<(), Error> {
        let since = self.batches.last().map_or(self.after, |(_, batch)| batch.last);
        for batch in db.changes(since)? {
            let batch = Delivered::from(&batch?);
            self.batches.push((at(), batch));
        }
        Ok(())
    }

    /// Returns what was received by disk operation `at`; `None` if the reader began later.
    #[must_use]
    pub fn by(&self, at: usize) -> Option<Self> {
        let mut received = self.clone();
        received.batches.retain(|(returned, _)| *returned <= at);
        received.batches.iter_mut().for_each(|(returned, _)| *returned = 0);
        (self.began <= at).then_some(Self { began: 0, ..received })
    }

    /// Checks that the stream of `db` returns the batches again, each once, and more that lead to
    /// the contents `found`. Older batches may have been dropped.
    ///
    /// # Errors
    ///
    /// The fault of the stream.
    pub fn check(&self, db: &Db, found: &Model) -> Result<(), String> {
        let Some(kept_after) = db.stats().changes_kept_after else {
            return Err("the store has forgotten to keep changes".to_owned());
        };
        let after = kept_after.max(self.after);
        let text = |error: Error| format!("the stream after {after}: {error:?}");
        let mut copy = self.base.clone();
        let mut returned = Vec::new();
        for batch in db.changes(after).map_err(text)? {
            let batch = batch.map_err(text)?;
            if after == self.after {
                copy.apply(&batch)?;
            }
            returned.push(Delivered::from(&batch));
        }
        if let Some([old, new]) = returned.array_windows().find(|[old, new]| new.first <= old.last)
        {
            return Err(format!("the stream returns {new:?} after {old:?}"));
        }
        let before = self.batches.iter().map(|(_, batch)| batch);
        let before: Vec<_> = before.filter(|batch| batch.last > after).copied().collect();
        if let Some(at) = (0..before.len()).find(|&at| returned.get(at) != Some(&before[at])) {
            let (was, is) = (before[at], returned.get(at));
            return Err(format!("the stream returned {was:?}, and now {is:?}"));
        }
        if after == self.after && copy.model() != found {
            let text = copy.model().difference(found, 12);
            return Err(format!("a copy by the stream differs from the store:\n{text}"));
        }
        Ok(())
    }
}
