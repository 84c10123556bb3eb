//! Histories as text, and the anomalies found in them: `testdata/isolation`.
//!
//! The input of `check` has a line for the initial values, if any, and one for each transaction:
//!
//! ```text
//! initial: a 1, b 2
//! T1 1..4: get a 1, scan a..c a 1 b 2, put a 3, del b 4, commit 1
//! T2: get a -, abort
//! ```
//!
//! `-` is no value. `T1 1..4` begins at 1 and ends at 4; without times, all are concurrent.
//! The end is `commit`, with its place in the order if it writes, `abort`, or `unknown`. The output
//! has the anomalies, those that snapshot isolation allows in parentheses.

use std::fmt::Write as _;

use sievedb_tests::isolation::{
    anomaly::Isolation,
    check::check,
    history::{History, Key, Operation, Outcome, Transaction, WriteId},
};

#[path = "../../../engine/src/tests/scenario.rs"]
mod datadriven;

#[test]
fn anomalies() {
    datadriven::check("isolation", |_: &mut (), command, input| {
        assert_eq!(command, "check");
        describe(&parse(input))
    });
}

fn describe(history: &History) -> String {
    let report = check(history);
    let mut text = String::new();
    for finding in report.findings() {
        let found = finding.to_string();
        let (name, rest) = found.split_once('\n').expect("a name and its reasons");
        if finding.anomaly.is_allowed(Isolation::Snapshot) {
            writeln!(text, "({name})\n{rest}").expect("a string takes all");
        } else {
            writeln!(text, "{name}\n{rest}").expect("a string takes all");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if text.is_empty() { "no anomalies\n".to_owned() } else { text }
}

fn parse(lines: &[&str]) -> History {
    let mut history = History::default();
    for line in lines {
        let (head, calls) = line.split_once(": ").expect("a name and calls");
        let calls = calls.split(", ").map(|call| call.split(' ').collect::<Vec<_>>());
        if head == "initial" {
            history.initial = calls.map(|call| (call[0].into(), id(call[1]))).collect();
            continue;
        }
        let (name, times) = head.split_once(' ').unwrap_or((head, "0..1000"));
        assert_eq!(name, format!("T{}", history.transactions.len() + 1));
        let (begin, end) = times.split_once("..").expect("two times");
        let mut transaction = Transaction {
            operations: Vec::new(),
            outcome: Outcome::Aborted,
            order: None,
            begin: id(begin),
            end: id(end),
        };
        calls.for_each(|call| add(&mut transaction, &call));
        history.transactions.push(transaction);
    }
    history
}

fn add(transaction: &mut Transaction, call: &[&str]) {
    let key = || Key::from(call[1]);
    let operation = match call[0] {
        "get" => Operation::Get { key: key(), found: (call[2] != "-").then(|| id(call[2])) },
        "put" => Operation::Insert { key: key(), id: id(call[2]) },
        "del" => Operation::Remove { key: key(), id: id(call[2]) },
        "scan" => {
            let (from, to) = call[1].split_once("..").expect("two bounds");
            let to = (!to.is_empty()).then(|| to.into());
            let pairs = call[2..].chunks(2).map(|pair| (pair[0].into(), id(pair[1])));
            Operation::Scan { from: from.into(), to, found: pairs.collect() }
        }
        end => {
            transaction.order = call.get(1).map(|order| id(order));
            transaction.outcome = match end {
                "commit" => Outcome::Committed,
                "abort" => Outcome::Aborted,
                "unknown" => Outcome::Unknown,
                end => panic!("{end}"),
            };
            return;
        }
    };
    transaction.operations.push(operation);
}

fn id(text: &str) -> WriteId {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}
