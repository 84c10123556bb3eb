//! `sieve backup`.

use sievedb::Db;

use super::{failure, output, sieve, text};

#[test]
fn backups_are_created_listed_verified_pruned_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["store", "set", "old", "new", "to", "one"].map(|name| dir.path().join(name));
    let [store, set, old, new, to, one] = [0, 1, 2, 3, 4, 5].map(|at: usize| text(&paths[at]));
    assert!(failure(&["backup", "create", store, set]).contains("there is no store"));
    output(&["put", store, "key", "1"]);
    assert!(output(&["backup", "create", store, set]).starts_with("backup 1: "));
    output(&["put", store, "key", "2"]);
    assert!(output(&["backup", "create", store, set]).starts_with("backup 2: "));
    let list = output(&["backup", "list", set]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(output(&["backup", "verify", set]).ends_with("0 problems\n"));
    output(&["backup", "restore", set, old, "--number", "1"]);
    output(&["backup", "restore", set, new]);
    assert_eq!(output(&["get", old, "key"]), "1\n");
    assert_eq!(output(&["get", new, "key"]), "2\n");
    let fields: Vec<_> = list.lines().next().unwrap().split('\t').collect();
    assert_eq!((fields.len(), fields[2]), (7, fields[5]), "{list}");
    output(&["backup", "restore", set, to, "--to-sequence", fields[2]]);
    assert_eq!(output(&["get", to, "key"]), "1\n");
    let restore = ["backup", "restore", set, one];
    let late = failure(&[&restore[..], &["--to-time", "99999999999"]].concat());
    assert!(late.contains("is archived to sequence number"), "{late}");
    let unknown = failure(&[&restore[..], &["--keyspace", "users"]].concat());
    assert!(unknown.contains("users"), "{unknown}");
    output(&[&restore[..], &["--keyspace", "default"]].concat());
    assert_eq!(output(&["get", one, "key"]), "2\n");
    assert_eq!(output(&["backup", "prune", set, "--last", "1"]), "1 backup removed\n");
    let removed = ["backup", "restore", set, &format!("{to}2"), "--number", "1"];
    assert!(failure(&removed).contains("no backup 1"));
}

#[test]
fn a_replica_is_written_continued_and_refreshed() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["store", "set", "replica", "other"].map(|name| dir.path().join(name));
    let [store, set, replica, other] = [0, 1, 2, 3].map(|at: usize| text(&paths[at]));
    let run = ["backup", "replica", set, replica];
    assert!(failure(&run).contains("no backup"), "the set is empty");
    output(&["put", store, "key", "1"]);
    output(&["compact", store]);
    output(&["backup", "create", store, set]);
    let first = output(&run);
    assert!(first.starts_with("backup 1: ") && first.contains("copied"), "{first}");
    assert_eq!(output(&["get", replica, "key"]), "1\n");
    let refresh = ["backup", "replica", set, replica, "--refresh", "--threads", "2"];
    assert_eq!(output(&refresh), "backup 1: there is no newer one\n");
    output(&["put", store, "key", "2"]);
    output(&["backup", "create", store, set]);
    assert_eq!(output(&["get", replica, "key"]), "1\n");
    let second = output(&refresh);
    assert!(second.starts_with("backup 2: ") && second.contains("copied"), "{second}");
    assert_eq!(output(&["get", replica, "key"]), "2\n");
    let another = failure(&[&run[..], &["--number", "1"]].concat());
    assert!(another.contains("is not empty: it contains \"REPLICA\""), "{another}");
    assert!(output(&["verify", replica]).contains("0 problems"));
    output(&["put", replica, "key", "3"]);
    let written = failure(&refresh);
    assert!(written.contains("was opened for writing; use another directory"), "{written}");
    let wrong = failure(&["backup", "replica", set, other, "--threads", "0"]);
    assert!(wrong.contains("1..=64"), "{wrong}");
    assert!(failure(&["backup", "replica", set, store]).contains("is not a replica"));
}

#[test]
fn prune_without_a_rule_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["store", "set"].map(|name| dir.path().join(name));
    let [store, set] = [0, 1].map(|at: usize| text(&paths[at]));
    for value in ["1", "2", "3"] {
        output(&["put", store, "key", value]);
        output(&["backup", "create", store, set]);
    }
    let errors = failure(&["backup", "prune", set, "--last", "0"]);
    assert!(errors.contains("a rule with a count above 0"), "{errors}");
    let errors = failure(&["backup", "prune", set]);
    assert!(errors.contains("--last <N>"), "{errors}");
    assert_eq!(output(&["backup", "list", set]).lines().count(), 3);
    let prune = ["backup", "prune", set, "--last", "2", "--daily", "1"];
    assert_eq!(output(&prune), "1 backup removed\n");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test damages a file of the set")]
fn a_damaged_record_does_not_block_the_set() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["store", "set", "new"].map(|name| dir.path().join(name));
    let [store, set, new] = [0, 1, 2].map(|at: usize| text(&paths[at]));
    for value in ["1", "2", "3"] {
        output(&["put", store, "key", value]);
        output(&["backup", "create", store, set]);
    }
    let record = paths[1].join("backups/000001");
    std::fs::write(&record, "damaged").unwrap();
    let list = output(&["backup", "list", set]);
    assert!(list.starts_with("2\t") && list.lines().count() == 2, "{list}");
    let verified = sieve(&["backup", "verify", set]);
    let problems = String::from_utf8(verified.stdout).unwrap();
    assert!(problems.starts_with(&format!("{}: ", record.display())), "{problems}");
    assert!(!problems.contains("sieve"), "{problems}");
    assert_eq!(verified.status.code(), Some(1));
    let errors = failure(&["backup", "restore", set, new, "--number", "1"]);
    assert!(errors.contains(&format!("`sieve backup verify {set}` lists all damage")), "{errors}");
    assert!(!errors.contains("sieve repair"), "{errors}");
    let pruned = sieve(&["backup", "prune", set, "--last", "1"]);
    let errors = String::from_utf8(pruned.stderr).unwrap();
    assert!(errors.contains(&record.display().to_string()), "{errors}");
    assert_eq!((pruned.status.code(), &*pruned.stdout), (Some(1), &b"1 backup removed\n"[..]));
    std::fs::remove_file(record).unwrap();
    assert_eq!(output(&["backup", "prune", set, "--last", "1"]), "0 backups removed\n");
    output(&["backup", "restore", set, new]);
    assert_eq!(output(&["get", new, "key"]), "3\n");
}

#[test]
fn keyspaces_are_named_as_keyspaces_prints_them() {
    let dir = tempfile::tempdir().unwrap();
    let [store, set, restored, replica] =
        ["store", "set", "restored", "replica"].map(|name| dir.path().join(name));
    let [store, set, restored, replica] =
        [&store, &set, &restored, &replica].map(|path| text(path));
    let db = Db::open(store).unwrap();
    db.keyspace("a\n\\").unwrap().insert("key", "1").unwrap();
    drop(db);
    let name = r"a\n\\";
    assert!(output(&["keyspaces", store]).lines().any(|line| line.starts_with(name)));
    output(&["backup", "create", store, set]);
    output(&["backup", "restore", set, restored, "--keyspace", name]);
    output(&["backup", "replica", set, replica, "--keyspace", name]);
    for copy in [restored, replica] {
        assert_eq!(output(&["get", copy, "key", "--keyspace", name]), "1\n");
    }
}
