//! Transactions of an application: a lock, a snapshot and a batch.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use sievedb::{Batch, Snapshot};
use sievedb_tests::{
    isolation::{
        anomaly::{Anomaly, Isolation},
        history::{Key, WriteId},
        target::{Calls, Failure, Range, Result, Target},
    },
    settings::{from_env, report, seed},
};

use super::engine::{Kind, Opened, id_of, phases, scanned, value_of};

/// Extent of the application's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// From the first read to the end of the commit.
    Transaction,
    /// The commit alone: reads are not protected.
    Commit,
}

impl Kind for Lock {
    type Target<'s> = Locking<'s>;

    fn target<'s>(&self, store: &'s Opened) -> Locking<'s> {
        Locking { store, lock: *self, commits: Mutex::new(0) }
    }
}

#[derive(Debug)]
struct Locking<'s> {
    store: &'s Opened,
    lock: Lock,
    commits: Mutex<u64>,
}

struct Transaction<'t> {
    target: &'t Locking<'t>,
    held: Option<MutexGuard<'t, u64>>,
    snapshot: Snapshot,
    batch: Batch,
    own: BTreeMap<Key, Option<WriteId>>,
}

impl Target for Locking<'_> {
    type Transaction<'t>
        = Transaction<'t>
    where
        Self: 't;

    fn begin(&self) -> Transaction<'_> {
        let held = (self.lock == Lock::Transaction).then(|| self.commits.lock().expect("no panic"));
        let (snapshot, batch) = (self.store.db.snapshot(), self.store.db.batch());
        Transaction { target: self, held, snapshot, batch, own: BTreeMap::new() }
    }
}

impl Calls for Transaction<'_> {
    fn get(&mut self, key: &str) -> Result<Option<WriteId>> {
        if let Some(own) = self.own.get(key) {
            return Ok(*own);
        }
        let (keyspace, key) = self.target.store.split(key);
        let found = self.snapshot.keyspace(keyspace).and_then(|keyspace| keyspace.get(key));
        Ok(found.expect("nothing fails").map(|value| id_of(&value)))
    }

    fn scan(&mut self, range: &Range) -> Result<Vec<(Key, WriteId)>> {
        let (keyspace, from) = self.target.store.split(&range.from);
        let (_, to) = self.target.store.split(&range.to);
        let keyspace = self.snapshot.keyspace(keyspace).expect("its own");
        let entries = keyspace.range(from..to).map(|entry| entry.expect("nothing fails"));
        let entries = entries.map(|entry| scanned(&range.from, entry));
        let mut found: BTreeMap<Key, Option<WriteId>> =
            entries.map(|(key, id)| (key, Some(id))).collect();
        let own = self.own.range(range.from.clone()..range.to.clone());
        found.extend(own.map(|(key, own)| (key.clone(), *own)));
        let mut found: Vec<_> =
            found.into_iter().filter_map(|(key, id)| Some((key, id?))).collect();
        if range.is_descending {
            found.reverse();
        }
        found.truncate(range.limit);
        Ok(found)
    }

    fn insert(&mut self, key: &str, id: WriteId) -> Result<()> {
        self.own.insert(key.into(), Some(id));
        let (keyspace, key) = self.target.store.split(key);
        self.batch.insert(keyspace, key, value_of(id)).expect("nothing fails");
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<()> {
        self.own.insert(key.into(), None);
        let (keyspace, key) = self.target.store.split(key);
        self.batch.remove(keyspace, key).expect("nothing fails");
        Ok(())
    }

    fn commit(mut self) -> Result<Option<u64>> {
        if self.batch.is_empty() {
            return Ok(None);
        }
        let Self { target, held, .. } = self;
        let mut commits = held.unwrap_or_else(|| target.commits.lock().expect("no panic"));
        let durability = target.store.durability();
        self.batch.commit(durability).map_err(|_| Failure::Unknown)?;
        *commits += 1;
        target.store.acknowledge(*commits, durability);
        Ok(Some(*commits))
    }

    fn abort(self) {}
}

#[test]
fn a_lock_over_snapshot_and_batch_is_serializable() {
    let seed = seed("isolation, application lock", 1);
    let count = from_env("SIEVE_TRANSACTIONS", 2_000);
    for phase in phases(&Lock::Transaction, (2, count / 2), seed) {
        let first = phase.report.violations(Isolation::Serializable).next();
        assert!(first.is_none(), "{}", first.expect("it is some"));
    }
}

/// Snapshots and batches alone lose updates. Nothing worse than an anti-dependency shows.
#[test]
fn snapshots_and_batches_lose_updates_only() {
    let seed = seed("isolation, batches", 1);
    let count = from_env("SIEVE_TRANSACTIONS", 2_000);
    let mut lost = 0;
    for phase in phases(&Lock::Commit, (2, count / 2), seed) {
        let found = phase.report;
        let is_worse = |it: Anomaly| {
            use Anomaly::{G0, G1a, G1b, G1c, Garbage, Internal, LostWrite};
            matches!(it, G0 | G1a | G1b | G1c | Garbage | Internal | LostWrite)
        };
        let mut worse = found.findings().iter().filter(|finding| is_worse(finding.anomaly));
        assert!(worse.next().is_none(), "{:?}", found.findings());
        lost += found.count(|it| it == Anomaly::LostUpdate);
    }
    report(&format!("isolation of batches: {lost} lost updates"));
    assert!(lost > 0, "no update was lost");
}
