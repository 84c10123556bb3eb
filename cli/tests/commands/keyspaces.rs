//! Commands for whole keyspaces, merge operands, and values that expire.

use std::{sync::Arc, time::Duration};

use sievedb::{Append, Counter, Db, KeyspaceOptions};

use crate::{exits_with_1_silently, failure, output, text};

#[test]
fn keyspaces_are_renamed_cleared_and_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    for args in [&["clear", store][..], &["rename", store, "a", "b"], &["ttl", store, "a"]] {
        let error = failure(args);
        assert!(error.contains(store), "{error}");
    }
    output(&["put", store, "a", "1"]);
    output(&["put", store, "k", "1", "--keyspace", "old", "--create-keyspace"]);
    output(&["rename", store, "old", r"new\n"]);
    assert_eq!(output(&["keyspaces", store]), "default\nnew\\n\n");
    assert_eq!(output(&["get", store, "k", "--keyspace", r"new\n"]), "1\n");
    let error = failure(&["rename", store, "old", "other"]);
    assert!(error.contains("\"old\"") && error.contains("`sieve keyspaces"), "{error}");
    for (old, new) in [("default", "other"), (r"new\n", "default")] {
        let error = failure(&["rename", store, old, new]);
        assert!(error.contains("default"), "{error}");
    }

    let sizes = output(&["keyspaces", store, "--sizes"]);
    let lines: Vec<Vec<&str>> = sizes.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        (lines[0][..2].to_vec(), &lines[1][..2]),
        (vec!["default", "1"], &["new\\n", "1"][..])
    );
    assert!(lines.iter().all(|line| line[2].parse::<u64>().unwrap() > 0), "{sizes}");

    output(&["clear", store, "--keyspace", r"new\n"]);
    assert_eq!(output(&["scan", store, "--keyspace", r"new\n"]), "");
    let sizes = output(&["keyspaces", store, "--sizes"]);
    assert!(sizes.lines().nth(1).unwrap().starts_with("new\\n\t0\t"), "{sizes}");
    assert_eq!(output(&["get", store, "a"]), "1\n", "another keyspace");
    let error = failure(&["clear", store, "--keyspace", "none"]);
    assert!(error.contains("\"none\""), "{error}");
    output(&["clear", store]);
    exits_with_1_silently(&["get", store, "a"]);
}

#[test]
fn values_expire_after_their_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let seconds = |key: &str| output(&["ttl", store, key]).trim().parse::<f64>().unwrap();
    output(&["put", store, "hour", "1", "--ttl", "1h"]);
    let left = seconds("hour");
    assert!((1.0..=3600.0).contains(&left), "{left}");
    assert_eq!(output(&["get", store, "hour"]), "1\n");
    output(&["put", store, "ever", "1"]);
    assert_eq!(output(&["ttl", store, "ever"]), "none\n");
    output(&["put", store, "ever", "2", "--ttl", "0"]);
    exits_with_1_silently(&["get", store, "ever"]);
    exits_with_1_silently(&["ttl", store, "ever"]);
    let error = failure(&["put", store, "a", "1", "--ttl", "soon"]);
    assert!(error.contains("write seconds"), "{error}");

    let db = Db::open(dir.path()).unwrap();
    let options = KeyspaceOptions::new().default_ttl(Duration::from_secs(3600));
    drop(db.keyspace_with("sessions", &options).unwrap());
    drop(db);
    let sessions = |args: &[&str]| output(&[args, &["--keyspace", "sessions"]].concat());
    sessions(&["put", store, "a", "1"]);
    assert_ne!(sessions(&["ttl", store, "a"]), "none\n");
    sessions(&["put", store, "a", "1", "--ttl", "none"]);
    assert_eq!(sessions(&["ttl", store, "a"]), "none\n");
    let stats = output(&["stats", store]);
    assert!(stats.contains("default TTL of 3600s"), "{stats}");
}

#[test]
fn operands_are_merged_by_the_operator_of_the_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let db = Db::open(dir.path()).unwrap();
    let lists = KeyspaceOptions::new().merge_operator(Arc::new(Append::with_separator(",")));
    let counts = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
    drop(db.keyspace_with("lists", &lists).unwrap());
    drop(db.keyspace_with("counts", &counts).unwrap());
    drop(db);
    for operand in ["one", r"t\x77o"] {
        output(&["merge", store, "a", operand, "--keyspace", "lists"]);
    }
    assert_eq!(output(&["get", store, "a", "--keyspace", "lists"]), "one,two\n");
    for _ in 0..2 {
        output(&["merge", store, "61", "0000000000000005", "--hex", "--keyspace", "counts"]);
    }
    let count = output(&["get", store, "61", "--hex", "--keyspace", "counts"]);
    assert_eq!(count, "000000000000000a\n");
    let error = failure(&["merge", store, "a", "1"]);
    assert!(error.contains("merge operator") && error.contains("\"default\""), "{error}");
    let error = failure(&["merge", store, "a", "1", "--keyspace", "none"]);
    assert!(error.contains("\"none\""), "{error}");
}
