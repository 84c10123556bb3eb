//! Runs random transactions on a [`Target`], and records them.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread, vec,
};

use super::{
    history::{Key, Operation, Outcome, Transaction},
    target::{Calls, Failure, Range, Result, Target},
};
use crate::rng::Rng;

/// Keyspaces that the transactions use, by their first letters.
pub const KEYSPACES: [char; 2] = ['a', 'b'];

/// Keys of each keyspace.
const KEYS: usize = 12;

/// Counters that the histories of a store share.
#[derive(Debug, Default)]
pub struct Recorder {
    time: AtomicU64,
    ids: AtomicU64,
}

impl Recorder {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, SeqCst)
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, SeqCst)
    }
}

/// A planned call.
#[derive(Debug)]
enum Step {
    Get(Key),
    Scan(Range),
    Insert(Key),
    Remove(Key),
    /// Scans a range, and removes it.
    RemoveRange(Range),
}

fn key(rng: &mut Rng) -> Key {
    format!("{}/{:02}", rng.pick(&KEYSPACES), rng.below(KEYS)).into()
}

/// Chooses the calls of a transaction: few reads, then few writes, seldom mixed.
fn plan(rng: &mut Rng) -> vec::IntoIter<Step> {
    let mut steps = Vec::new();
    for _ in 0..rng.below(4) {
        steps.push(if rng.chance(2, 5) { Step::Scan(range(rng)) } else { Step::Get(key(rng)) });
    }
    let reads = steps.len();
    for _ in 0..rng.below(3) {
        if rng.chance(1, 12) {
            steps.push(Step::RemoveRange(Range { limit: usize::MAX, ..range(rng) }));
            continue;
        }
        // Half of the keys are absent.
        let read = steps[..reads].iter().rev().find_map(|step| match step {
            Step::Get(key) => Some(key.clone()),
            _ => None,
        });
        let key = read.filter(|_| rng.chance(1, 4)).unwrap_or_else(|| key(rng));
        steps.push(if rng.chance(1, 2) { Step::Insert(key) } else { Step::Remove(key) });
    }
    if rng.chance(1, 8) && steps.len() > 1 {
        let (left, right) = (rng.below(steps.len()), rng.below(steps.len()));
        steps.swap(left, right);
    }
    steps.into_iter()
}

fn range(rng: &mut Rng) -> Range {
    let keyspace = rng.pick(&KEYSPACES);
    let from = rng.below(KEYS);
    let to = from + 1 + rng.below(KEYS - from);
    let limit = if rng.chance(1, 3) { 1 + rng.below(3) } else { usize::MAX };
    let (from, to) = (format!("{keyspace}/{from:02}").into(), format!("{keyspace}/{to:02}").into());
    Range { from, to, limit, is_descending: rng.chance(1, 2) }
}

/// A transaction that was begun.
struct Running<C> {
    calls: C,
    steps: vec::IntoIter<Step>,
    aborts: bool,
    record: Transaction,
}

impl<C: Calls> Running<C> {
    fn begin<'t, T: Target<Transaction<'t> = C>>(
        target: &'t T,
        recorder: &Recorder,
        rng: &mut Rng,
    ) -> Self {
        let record = Transaction {
            operations: Vec::new(),
            outcome: Outcome::Aborted,
            order: None,
            begin: recorder.now(),
            end: 0,
        };
        Self { calls: target.begin(), steps: plan(rng), aborts: rng.chance(1, 20), record }
    }

    /// Makes the next call. Returns the transaction if it goes on, else its record.
    fn step(mut self, recorder: &Recorder) -> std::result::Result<Self, Transaction> {
        if let Some(step) = self.steps.next() {
            return match self.call(step, recorder) {
                Ok(()) => Ok(self),
                Err(_) => Err(self.abort(recorder)),
            };
        }
        if self.aborts {
            return Err(self.abort(recorder));
        }
        let mut record = self.record;
        match self.calls.commit() {
            Ok(order) => (record.outcome, record.order) = (Outcome::Committed, order),
            Err(Failure::Conflict) => record.outcome = Outcome::Aborted,
            Err(Failure::Unknown) => record.outcome = Outcome::Unknown,
        }
        record.end = recorder.now();
        Err(record)
    }

    fn abort(self, recorder: &Recorder) -> Transaction {
        self.calls.abort();
        Transaction { end: recorder.now(), ..self.record }
    }

    fn call(&mut self, step: Step, recorder: &Recorder) -> Result<()> {
        match step {
            Step::Get(key) => {
                let found = self.calls.get(&key)?;
                self.record.operations.push(Operation::Get { key, found });
            }
            Step::Scan(range) => drop(self.scan(range)?),
            Step::Insert(key) => {
                let id = recorder.next_id();
                self.calls.insert(&key, id)?;
                self.record.operations.push(Operation::Insert { key, id });
            }
            Step::Remove(key) => {
                self.calls.remove(&key)?;
                self.record.operations.push(Operation::Remove { key, id: recorder.next_id() });
            }
            Step::RemoveRange(range) => {
                let keys = self.scan(range.clone())?;
                self.calls.remove_range(&range, &keys)?;
                // Others cannot have added a key, or the commit fails.
                let removals =
                    keys.into_iter().map(|key| Operation::Remove { key, id: recorder.next_id() });
                self.record.operations.extend(removals);
            }
        }
        Ok(())
    }

    /// Scans a range, and returns the keys found.
    fn scan(&mut self, range: Range) -> Result<Vec<Key>> {
        let mut found = self.calls.scan(&range)?;
        let Range { mut from, mut to, limit, is_descending } = range;
        // A scan that stops at its limit consumed nothing behind its last key.
        match found.last().filter(|_| found.len() >= limit) {
            Some((last, _)) if is_descending => from = last.clone(),
            Some((last, _)) => to = format!("{last}\0").into(),
            None => {}
        }
        if is_descending {
            found.reverse();
        }
        let keys = found.iter().map(|(key, _)| key.clone()).collect();
        self.record.operations.push(Operation::Scan { from, to: Some(to), found });
        Ok(keys)
    }
}

/// Runs `count` transactions, `open` of them at a time, on one thread: reproducible by `seed` if
/// the target is.
#[must_use]
pub fn interleave(
    target: &impl Target,
    recorder: &Recorder,
    (count, open, seed): (usize, usize, u64),
) -> Vec<Transaction> {
    let mut rng = Rng::new(seed);
    let (mut running, mut records) = (Vec::new(), Vec::with_capacity(count));
    while records.len() < count {
        if running.len() < open {
            running.push(Running::begin(target, recorder, &mut rng));
        }
        let at = rng.below(running.len());
        match running.swap_remove(at).step(recorder) {
            Ok(further) => running.push(further),
            Err(record) => records.push(record),
        }
    }
    records.extend(running.into_iter().map(|running| running.abort(recorder)));
    records
}

/// Runs `count` transactions on `threads` threads.
///
/// # Panics
///
/// If a thread does.
#[must_use]
pub fn run(
    target: &impl Target,
    recorder: &Recorder,
    (count, threads, seed): (usize, usize, u64),
) -> Vec<Transaction> {
    let of_thread = |thread: usize| {
        let mut rng = Rng::new(seed ^ (thread as u64) << 32);
        let count = count / threads + usize::from(thread < count % threads);
        let mut records = Vec::with_capacity(count);
        while records.len() < count {
            let mut running = Running::begin(target, recorder, &mut rng);
            let record = loop {
                // Otherwise few transactions overlap.
                if rng.chance(1, 4) {
                    thread::yield_now();
                }
                match running.step(recorder) {
                    Ok(further) => running = further,
                    Err(record) => break record,
                }
            };
            records.push(record);
        }
        records
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}
