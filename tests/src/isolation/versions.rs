//! Versions of each key, in commit order.

use std::collections::{HashMap, HashSet};

use super::history::{History, Outcome, Transaction, WriteId};

/// A version of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    /// Index of the transaction that wrote it. `None` for the initial version.
    pub(super) writer: Option<u32>,
    /// `None` for an absent initial version.
    pub(super) id: Option<WriteId>,
    /// The version has a value.
    pub(super) is_live: bool,
}

/// Position of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the key.
    pub(super) key: u32,
    /// Index among the versions of the key.
    pub(super) at: u32,
}

/// Fate of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    /// The write is a version.
    Installed(Place),
    /// The same transaction overwrote it.
    Intermediate { key: u32, writer: u32 },
    /// Its transaction aborted.
    Aborted { key: u32, writer: u32 },
    /// The write was seen, but its place in the commit order is unknown.
    Unplaced { key: u32, writer: u32 },
}

/// A version without a value.
#[derive(Debug)]
struct Absence {
    at: u32,
    /// Latest end of a transaction that overwrote this version or an earlier absence.
    overwritten_max: u64,
    /// Earliest begin of a transaction that wrote this version or a later absence.
    written_min: u64,
}

#[derive(Debug, Default)]
struct KeyVersions {
    versions: Vec<Version>,
    absences: Vec<Absence>,
}

/// The versions of all keys, and the fate of each write.
#[derive(Debug)]
pub(super) struct Versions<'h> {
    /// In order.
    keys: Vec<&'h str>,
    index: HashMap<&'h str, u32>,
    of_key: Vec<KeyVersions>,
    fates: HashMap<WriteId, Fate>,
    /// Transactions whose writes count.
    is_committed: Vec<bool>,
}

impl<'h> Versions<'h> {
    /// Orders the versions of `history`.
    ///
    /// # Panics
    ///
    /// If two writes share an id, or two commits a place in the order.
    pub(super) fn new(history: &'h History) -> Self {
        let keys = written_keys(history);
        let index: HashMap<_, _> = keys.iter().copied().zip(0..).collect();
        let mut of_key: Vec<KeyVersions> = Vec::new();
        of_key.resize_with(keys.len(), KeyVersions::default);
        let absent = Version { writer: None, id: None, is_live: false };
        of_key.iter_mut().for_each(|key| key.versions.push(absent));
        let mut fates = HashMap::new();
        for (key, id) in &history.initial {
            let key = index[&**key];
            of_key[key as usize].versions[0] =
                Version { writer: None, id: Some(*id), is_live: true };
            fates.insert(*id, Fate::Installed(Place { key, at: 0 }));
        }
        let is_committed = committed(history);
        let mut by_order: Vec<u32> = (0..history.transactions.len() as u32).collect();
        by_order.sort_by_key(|&writer| history.transactions[writer as usize].order);
        let mut last_order = None;
        for writer in by_order {
            let transaction = &history.transactions[writer as usize];
            let is_committed = is_committed[writer as usize];
            let order = transaction.order.filter(|_| is_committed);
            assert!(order.is_none() || order > last_order, "two commits are {order:?} in order");
            last_order = last_order.max(order);
            let mut overwritten = HashSet::new();
            for (key, id, is_removal) in transaction.writes().rev() {
                let key = index[&**key];
                let fate = if !is_committed {
                    Fate::Aborted { key, writer }
                } else if !overwritten.insert(key) {
                    Fate::Intermediate { key, writer }
                } else if order.is_none() {
                    Fate::Unplaced { key, writer }
                } else {
                    let versions = &mut of_key[key as usize].versions;
                    let at = versions.len() as u32;
                    let (writer, id) = (Some(writer), Some(id));
                    versions.push(Version { writer, id, is_live: !is_removal });
                    Fate::Installed(Place { key, at })
                };
                assert!(fates.insert(id, fate).is_none(), "two writes have the id {id}");
            }
        }
        for key in &mut of_key {
            key.find_absences(&history.transactions);
        }
        Self { keys, index, of_key, fates, is_committed }
    }

    /// Returns whether the writes of a transaction count.
    pub(super) fn is_committed(&self, transaction: u32) -> bool {
        self.is_committed[transaction as usize]
    }

    pub(super) fn name(&self, key: u32) -> &'h str {
        self.keys[key as usize]
    }

    /// Returns the index of a key, `None` if it was never written.
    pub(super) fn key(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    /// Returns the keys from `from` to below `to`.
    pub(super) fn range(&self, from: &str, to: Option<&str>) -> std::ops::Range<u32> {
        let start = self.keys.partition_point(|key| *key < from);
        let end = to.map_or(self.keys.len(), |to| self.keys.partition_point(|key| *key < to));
        start as u32..end.max(start) as u32
    }

    pub(super) fn fate(&self, id: WriteId) -> Option<Fate> {
        self.fates.get(&id).copied()
    }

    pub(super) fn of_key(&self, key: u32) -> &[Version] {
        &self.of_key[key as usize].versions
    }

    pub(super) fn keys(&self) -> std::ops::Range<u32> {
        0..self.keys.len() as u32
    }

    /// Returns the first and the last version without a value that a transaction between `begin`
    /// and `end` may have read, below version `below` if given. `None` if there is none.
    ///
    /// A version is too old if its overwriter ended before `begin`, and too new if its writer
    /// began after `end`.
    pub(super) fn absences(
        &self,
        key: u32,
        (begin, end): (u64, u64),
        below: Option<u32>,
    ) -> Option<(u32, u32)> {
        let absences = &self.of_key[key as usize].absences;
        let first = absences.partition_point(|absence| absence.overwritten_max < begin);
        let mut after_last = absences.partition_point(|absence| absence.written_min <= end);
        if let Some(below) = below {
            after_last = after_last.min(absences.partition_point(|absence| absence.at < below));
        }
        let candidates = absences.get(first..after_last)?;
        Some((candidates.first()?.at, candidates.last()?.at))
    }
}

impl KeyVersions {
    fn find_absences(&mut self, transactions: &[Transaction]) {
        let of = |writer: u32| &transactions[writer as usize];
        let mut overwritten_max = 0;
        for (at, version) in self.versions.iter().enumerate().filter(|(_, it)| !it.is_live) {
            let next = self.versions.get(at + 1).and_then(|next| next.writer);
            overwritten_max = next.map_or(u64::MAX, |next| of(next).ended()).max(overwritten_max);
            let written_min = version.writer.map_or(0, |writer| of(writer).begin);
            self.absences.push(Absence { at: at as u32, overwritten_max, written_min });
        }
        let mut written_min = u64::MAX;
        for absence in self.absences.iter_mut().rev() {
            written_min = written_min.min(absence.written_min);
            absence.written_min = written_min;
        }
    }
}

/// Returns all keys with a version besides the absent initial one, in order.
fn written_keys(history: &History) -> Vec<&str> {
    let written = history.transactions.iter().flat_map(Transaction::writes);
    let all = history.initial.iter().map(|(key, _)| key).chain(written.map(|(key, _, _)| key));
    let keys: HashSet<&str> = all.map(|key| &**key).collect();
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_unstable();
    keys
}

/// Returns for each transaction whether it committed: acknowledged, or found by a read of another.
fn committed(history: &History) -> Vec<bool> {
    let transactions = &history.transactions;
    let mut unknown: HashMap<WriteId, usize> = HashMap::new();
    for (writer, transaction) in transactions.iter().enumerate() {
        if transaction.outcome == Outcome::Unknown {
            unknown.extend(transaction.writes().map(|(_, id, _)| (id, writer)));
        }
    }
    let mut is_committed: Vec<_> =
        transactions.iter().map(|it| it.outcome == Outcome::Committed).collect();
    if unknown.is_empty() {
        return is_committed;
    }
    for (reader, transaction) in transactions.iter().enumerate() {
        for id in transaction.operations.iter().flat_map(|operation| operation.found()) {
            if let Some(&writer) = unknown.get(&id).filter(|&&writer| writer != reader) {
                is_committed[writer] = true;
            }
        }
    }
    is_committed
}
