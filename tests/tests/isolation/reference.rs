//! The checker accepts correct stores in memory, and finds the fault of each faulty one.

use std::collections::BTreeMap;

use sievedb_tests::{
    isolation::{
        anomaly::{Anomaly, Isolation},
        check::{Report, check},
        history::{History, Key, Operation, WriteId},
        reference::{Control, Reference},
        run::{Recorder, interleave, run},
        survivors::survivors,
    },
    settings::{report, seed},
};

const COUNT: usize = 5_000;
const CONCURRENT: usize = 8;

fn checked(control: Control) -> (History, Report) {
    let seed = seed("isolation, reference", 1);
    let transactions = match control {
        Control::OneLock => {
            run(&Reference::new(control), &Recorder::default(), (COUNT, CONCURRENT, seed))
        }
        _ => interleave(&Reference::new(control), &Recorder::default(), (COUNT, CONCURRENT, seed)),
    };
    let history = History { initial: Vec::new(), transactions };
    let found = check(&history);
    let mut counts = BTreeMap::new();
    for finding in found.findings() {
        *counts.entry(finding.anomaly.to_string()).or_insert(0) += 1;
    }
    report(&format!("isolation of {control:?}: {counts:?}"));
    (history, found)
}

fn first_of(report: &Report, isolation: Isolation) -> Option<String> {
    report.violations(isolation).next().map(ToString::to_string)
}

#[test]
fn correct_stores_have_no_anomaly() {
    for control in [Control::OneLock, Control::Serializable] {
        let (_, report) = checked(control);
        assert_eq!(first_of(&report, Isolation::Serializable), None, "{control:?}");
    }
}

#[test]
fn snapshot_isolation_has_write_skew_only() {
    let (_, report) = checked(Control::Snapshot);
    assert_eq!(first_of(&report, Isolation::Snapshot), None);
    assert!(report.count(Anomaly::is_write_skew) > 0, "no write skew");
}

#[test]
fn faults_are_found() {
    for control in [Control::SkipsRanges, Control::SkipsAbsentKeys, Control::SkipsAll] {
        let (_, report) = checked(control);
        assert_ne!(first_of(&report, Isolation::Serializable), None, "{control:?}");
    }
}

#[test]
fn survivors_are_a_prefix_with_all_durable_commits() {
    let (history, _) = checked(Control::Serializable);
    let commits: Vec<_> = history.transactions.iter().filter_map(|it| it.order).collect();
    let last = commits.iter().copied().max().expect("some commit");
    let state = |until: u64| {
        let mut ordered: Vec<_> = history
            .transactions
            .iter()
            .filter(|it| it.order.is_some_and(|at| at <= until))
            .collect();
        ordered.sort_by_key(|it| it.order);
        let mut state = BTreeMap::<Key, WriteId>::new();
        for operation in ordered.into_iter().flat_map(|it| &it.operations) {
            match operation {
                Operation::Insert { key, id } => drop(state.insert(key.clone(), *id)),
                Operation::Remove { key, .. } => drop(state.remove(key)),
                _ => {}
            }
        }
        state
    };
    let middle = last / 2;
    let left = state(middle);
    let found = survivors(&history, &left, Some(middle)).expect("a prefix");
    assert!(found >= Some(middle), "{found:?}");
    assert!(survivors(&history, &left, Some(last)).is_err(), "durable commits are lost");
    // A half of a commit: one of two values is still the one before, which cannot come back.
    let torn = history.transactions.iter().find_map(|commit| {
        let mut torn = state(commit.order? - 1);
        let mut inserts = commit.operations.iter().filter_map(|operation| match operation {
            Operation::Insert { key, id } => Some((key, *id)),
            _ => None,
        });
        let ((first, _), (second, id)) = (inserts.next()?, inserts.next()?);
        (first != second && torn.contains_key(first)).then(|| torn.insert(second.clone(), id))?;
        Some(torn)
    });
    let torn = torn.expect("a commit with two values");
    assert!(survivors(&history, &torn, None).is_err(), "a half of a commit");
}
