//! Transactions of the engine.

use sievedb::{Durability, Error, Isolation, Options, TransactionOptions, planted::PlantedBug};
use sievedb_tests::{
    isolation::{
        anomaly::{self, Anomaly},
        history::{Key, WriteId},
        target::{Calls, Failure, Range, Result, Target},
    },
    settings::{from_env, report, seed},
};

use super::engine::{Kind, Opened, Phase, id_of, phases, scanned, value_of};

const PHASES: usize = 4;
/// Transactions of all phases; `SIEVE_TRANSACTIONS` sets another number.
pub(crate) const COUNT: usize = 5_000;

/// Transactions of the engine with one isolation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transactions {
    isolation: Isolation,
    bug: Option<PlantedBug>,
}

impl Transactions {
    pub(super) fn new(isolation: Isolation) -> Self {
        Self { isolation, bug: None }
    }
}

impl Kind for Transactions {
    type Target<'s> = Running<'s>;

    fn options(&self, options: Options) -> Options {
        match self.bug {
            Some(bug) => options.planted_bug(bug),
            None => options,
        }
    }

    fn target<'s>(&self, store: &'s Opened) -> Running<'s> {
        Running { store, isolation: self.isolation, removes_ranges: self.bug.is_none() }
    }
}

/// A store whose transactions are run.
#[derive(Debug)]
pub(crate) struct Running<'s> {
    store: &'s Opened,
    isolation: Isolation,
    /// Else keys are removed one by one: without validation, a range removes keys of others, which
    /// no history shows.
    removes_ranges: bool,
}

/// A transaction that was begun.
#[derive(Debug)]
pub(crate) struct Transaction<'t> {
    store: &'t Opened,
    removes_ranges: bool,
    transaction: sievedb::Transaction,
}

impl Target for Running<'_> {
    type Transaction<'t>
        = Transaction<'t>
    where
        Self: 't;

    fn begin(&self) -> Transaction<'_> {
        let options = TransactionOptions::new().isolation(self.isolation);
        let transaction = self.store.db.begin_with(options);
        Transaction { store: self.store, removes_ranges: self.removes_ranges, transaction }
    }
}

impl Calls for Transaction<'_> {
    fn get(&mut self, key: &str) -> Result<Option<WriteId>> {
        let (keyspace, key) = self.store.split(key);
        let found = self.transaction.get(keyspace, key).expect("nothing fails");
        Ok(found.map(|value| id_of(&value)))
    }

    fn scan(&mut self, range: &Range) -> Result<Vec<(Key, WriteId)>> {
        let (keyspace, from) = self.store.split(&range.from);
        let (_, to) = self.store.split(&range.to);
        let entries = self.transaction.range(keyspace, from..to);
        let found: sievedb::Result<Vec<_>> = match range.is_descending {
            true => entries.rev().take(range.limit).collect(),
            false => entries.take(range.limit).collect(),
        };
        let found = found.expect("nothing fails").into_iter();
        Ok(found.map(|entry| scanned(&range.from, entry)).collect())
    }

    fn insert(&mut self, key: &str, id: WriteId) -> Result<()> {
        let (keyspace, key) = self.store.split(key);
        self.transaction.insert(keyspace, key, value_of(id)).expect("nothing fails");
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<()> {
        let (keyspace, key) = self.store.split(key);
        self.transaction.remove(keyspace, key).expect("nothing fails");
        Ok(())
    }

    fn remove_range(&mut self, range: &Range, keys: &[Key]) -> Result<()> {
        if !self.removes_ranges {
            return keys.iter().try_for_each(|key| self.remove(key));
        }
        let (keyspace, from) = self.store.split(&range.from);
        let (_, to) = self.store.split(&range.to);
        self.transaction.remove_range(keyspace, from..to).expect("nothing fails");
        Ok(())
    }

    fn commit(self) -> Result<Option<u64>> {
        let durability: Durability = self.store.durability();
        match self.transaction.commit(durability) {
            Ok(0) => Ok(None),
            Ok(order) => {
                self.store.acknowledge(order, durability);
                Ok(Some(order))
            }
            // On a full disk nothing is visible either.
            Err(error) if error.is_no_space() => Err(Failure::Conflict),
            Err(Error::Conflict { .. }) => Err(Failure::Conflict),
            Err(error) => panic!("nothing fails but {error}"),
        }
    }

    fn abort(self) {
        self.transaction.rollback();
    }
}

/// Runs `count` transactions, with the bug `bug` if any.
pub(crate) fn run(
    isolation: Isolation,
    bug: Option<PlantedBug>,
    count: usize,
    seed: u64,
) -> Vec<Phase> {
    phases(&Transactions { isolation, bug }, (PHASES, count / PHASES), seed)
}

/// Checks that no phase violates `isolation`. Returns the number of commits, and of anomalies of a
/// kind.
pub(super) fn check(
    phases: &[Phase],
    isolation: anomaly::Isolation,
    is_counted: impl Fn(Anomaly) -> bool + Copy,
) -> (usize, usize) {
    let (mut commits, mut counted) = (0, 0);
    for phase in phases {
        let mut violations = phase.report.violations(isolation);
        if let Some(first) = violations.next() {
            panic!("{first}and {} further anomalies", violations.count());
        }
        commits += phase.commits;
        counted += phase.report.count(is_counted);
    }
    (commits, counted)
}

#[test]
fn serializable_transactions_have_no_anomaly() {
    let (seed, count) = (seed("isolation, serializable", 1), from_env("SIEVE_TRANSACTIONS", COUNT));
    let phases = run(Isolation::Serializable, None, count, seed);
    let (commits, anomalies) = check(&phases, anomaly::Isolation::Serializable, |_| true);
    report(&format!(
        "isolation, serializable: {count} transactions, {commits} commits, {anomalies} anomalies"
    ));
    assert!(commits > count / 2, "only {commits} of {count} commit");
}

#[test]
fn snapshot_isolation_has_write_skew_only() {
    let (seed, count) = (seed("isolation, snapshot", 1), from_env("SIEVE_TRANSACTIONS", COUNT));
    let phases = run(Isolation::Snapshot, None, count, seed);
    let (commits, skews) = check(&phases, anomaly::Isolation::Snapshot, Anomaly::is_write_skew);
    report(&format!(
        "isolation, snapshot: {count} transactions, {commits} commits, {skews} write skews"
    ));
    assert!(skews > 0, "no write skew");
}
