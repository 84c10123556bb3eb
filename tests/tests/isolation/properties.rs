//! Random serial histories have no anomaly; each planted swap is one.

use std::collections::BTreeMap;

use sievedb_tests::{
    isolation::{
        anomaly::Anomaly,
        check::{Report, check},
        history::{History, Key, Operation, Outcome, Transaction, WriteId},
    },
    rng::Rng,
    settings::{from_env, seed},
};

/// Transactions with commits in the order of their numbers, each at a point between its begin and
/// its end.
fn serial(rng: &mut Rng, count: usize, keys: usize) -> History {
    let (mut state, mut next_id) = (BTreeMap::<Key, WriteId>::new(), 0);
    let mut history = History::default();
    let key = |rng: &mut Rng| Key::from(format!("{:04}", rng.below(keys)));
    for commit in 1..=count as u64 {
        let mut operations = Vec::new();
        let before = state.clone();
        let commits = !rng.chance(1, 10);
        for _ in 0..1 + rng.below(5) {
            let (key, other) = (key(rng), key(rng));
            operations.push(match rng.below(6) {
                0..=2 => Operation::Get { found: state.get(&key).copied(), key },
                3 => {
                    let (from, to) = (key.clone().min(other.clone()), key.max(other));
                    let found = state.range(from.clone()..to.clone());
                    let found =
                        found.take(30).map(|(key, id)| (key.clone(), *id)).collect::<Vec<_>>();
                    let last = found.last().filter(|_| found.len() == 30);
                    let to = last.map_or(to, |(last, _)| format!("{last}\0").into());
                    Operation::Scan { from, to: Some(to), found }
                }
                4 => {
                    next_id += 1;
                    state.insert(key.clone(), next_id);
                    Operation::Insert { key, id: next_id }
                }
                _ => {
                    next_id += 1;
                    state.remove(&key);
                    Operation::Remove { key, id: next_id }
                }
            });
        }
        if !commits {
            state = before;
        }
        history.transactions.push(Transaction {
            operations,
            outcome: if commits { Outcome::Committed } else { Outcome::Aborted },
            order: Some(commit),
            begin: 1000 + commit * 10 - rng.below(60) as u64,
            end: 1000 + commit * 10 + rng.below(60) as u64,
        });
    }
    history
}

fn text(report: &Report) -> String {
    report.findings().iter().map(ToString::to_string).collect()
}

/// Returns two committed transactions, the first one over before the second one begins.
fn apart(history: &History, rng: &mut Rng) -> Option<(usize, usize)> {
    let transactions = &history.transactions;
    let (first, second) = (rng.below(transactions.len()), rng.below(transactions.len()));
    let committed = |at: usize| transactions[at].outcome == Outcome::Committed;
    let is_apart = transactions[first].end < transactions[second].begin;
    (is_apart && committed(first) && committed(second)).then_some((first, second))
}

/// Returns the values that a transaction reads from others: places of the calls, keys and ids.
fn reads(transaction: &Transaction) -> Vec<(usize, Key, WriteId)> {
    let mut reads = Vec::new();
    for (at, operation) in transaction.operations.iter().enumerate() {
        match operation {
            Operation::Get { key, found: Some(found) } => reads.push((at, key.clone(), *found)),
            Operation::Insert { .. } | Operation::Remove { .. } => break,
            _ => {}
        }
    }
    reads
}

/// Swaps two values of a key that were read one after the other.
fn swap_reads(history: &mut History, rng: &mut Rng) -> bool {
    let Some((first, second)) = apart(history, rng) else { return false };
    let transactions = &mut history.transactions;
    let (left, right) = (reads(&transactions[first]), reads(&transactions[second]));
    for (left_at, left_key, left_id) in left {
        for (right_at, right_key, right_id) in &right {
            if left_key == *right_key && left_id != *right_id {
                let mut put = |transaction: usize, at: usize, id| {
                    let key = left_key.clone();
                    transactions[transaction].operations[at] =
                        Operation::Get { key, found: Some(id) };
                };
                put(first, left_at, *right_id);
                put(second, *right_at, left_id);
                return true;
            }
        }
    }
    false
}

/// Swaps the places of two commits that write the same key.
fn swap_commits(history: &mut History, rng: &mut Rng) -> bool {
    let Some((first, second)) = apart(history, rng) else { return false };
    let transactions = &mut history.transactions;
    let keys = |at: usize| {
        let operations = transactions[at].operations.iter();
        let written = operations.filter_map(|operation| match operation {
            Operation::Insert { key, .. } | Operation::Remove { key, .. } => Some(key),
            _ => None,
        });
        written.collect::<Vec<_>>()
    };
    let second_keys = keys(second);
    if !keys(first).iter().any(|key| second_keys.contains(key)) {
        return false;
    }
    let order = transactions[first].order;
    transactions[first].order = transactions[second].order;
    transactions[second].order = order;
    true
}

/// Replaces a value that a transaction read by the value before.
fn stale_read(history: &mut History, rng: &mut Rng) -> bool {
    let Some((first, second)) = apart(history, rng) else { return false };
    let transactions = &mut history.transactions;
    let Some((at, key, id)) = reads(&transactions[second]).into_iter().next() else { return false };
    let written = |transaction: &Transaction| {
        transaction.operations.iter().rev().find_map(|operation| match operation {
            Operation::Insert { key: written, id } if *written == key => Some(Some(*id)),
            Operation::Remove { key: written, .. } if *written == key => Some(None),
            _ => None,
        })
    };
    let stale = transactions[..first].iter().rev();
    let mut stale = stale.filter(|it| it.outcome == Outcome::Committed).filter_map(written);
    let (Some(_), Some(Some(stale))) = (written(&transactions[first]), stale.next()) else {
        return false;
    };
    assert_ne!(stale, id, "an overwritten value");
    transactions[second].operations[at] = Operation::Get { key, found: Some(stale) };
    true
}

/// A transaction whose value was read turns out to have aborted.
fn late_abort(history: &mut History, rng: &mut Rng) -> bool {
    let Some((_, reader)) = apart(history, rng) else { return false };
    let Some((_, _, id)) = reads(&history.transactions[reader]).into_iter().next() else {
        return false;
    };
    let writes = |transaction: &Transaction| {
        let mut operations = transaction.operations.iter();
        operations.any(|it| matches!(it, Operation::Insert { id: written, .. } if *written == id))
    };
    let writer = history.transactions.iter().position(writes).expect("it was written");
    history.transactions[writer].outcome = Outcome::Aborted;
    true
}

#[test]
fn serial_histories_have_no_anomaly() {
    let mut rng = Rng::new(seed("isolation, serial", 1));
    for _ in 0..200 {
        let (count, keys) = (1 + rng.below(300), 1 + rng.below(20));
        let report = check(&serial(&mut rng, count, keys));
        assert!(report.findings().is_empty(), "{}", text(&report));
    }
}

#[test]
fn planted_swaps_are_found() {
    let mut rng = Rng::new(seed("isolation, swaps", 1));
    type Swap = fn(&mut History, &mut Rng) -> bool;
    let swaps: [(&str, Swap); 4] = [
        ("reads", swap_reads),
        ("commits", swap_commits),
        ("a stale read", stale_read),
        ("a late abort", late_abort),
    ];
    for (name, swap) in swaps {
        for round in 0..50 {
            let mut history = serial(&mut rng, 200, 8);
            let swapped = (0..10_000).any(|_| swap(&mut history, &mut rng));
            assert!(swapped, "{name}: nothing to swap");
            let report = check(&history);
            assert!(!report.findings().is_empty(), "{name} of round {round} was not found");
            if name == "a late abort" {
                assert!(report.count(|anomaly| anomaly == Anomaly::G1a) > 0, "{}", text(&report));
            }
        }
    }
}

#[test]
fn many_transactions_take_linear_time() {
    let mut rng = Rng::new(seed("isolation, many", 1));
    let history = serial(&mut rng, from_env("SIEVE_TRANSACTIONS", 20_000), 1000);
    let report = check(&history);
    assert!(report.findings().is_empty(), "{}", text(&report));
}
