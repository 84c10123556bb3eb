//! `sieve changes`.

use sievedb::{ChangeRetention, Options};

use super::sieve;

#[test]
fn changes_are_printed_in_order_and_as_json() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    let db = Options::new().retain_changes(ChangeRetention::bytes(1 << 20)).open(path);
    let db = db.expect("a new store");
    db.insert("a\t", "1").expect("there is room");
    let users = db.keyspace("users").expect("there is room");
    users.remove_range("b".."c").expect("there is room");
    let since = db.snapshot().sequence();
    drop((db, users));
    // Other processes write without the option, which is stored.
    assert!(sieve(&["put", path, "key", "2"]).status.success());

    let all = sieve(&["changes", path]);
    let text = String::from_utf8(all.stdout).expect("text");
    let lines: Vec<_> = text.lines().map(|line| line.split_once('\t').expect("a number")).collect();
    let want = [
        "default\tcreate_keyspace",
        "default\tinsert\ta\\t\t1",
        "users\tcreate_keyspace",
        "users\tremove_range\tb\tc",
        "default\tinsert\tkey\t2",
    ];
    assert_eq!(lines.iter().map(|(_, line)| *line).collect::<Vec<_>>(), want);

    let json = sieve(&["changes", path, "--json", "--since", &since.to_string()]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one line of JSON");
    assert_eq!(json["first"], since + 1);
    assert_eq!(json["changes"][0]["kind"], "insert");
    assert_eq!(json["changes"][0]["value"], "2");
}

#[test]
fn a_store_without_changes_says_so() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    assert!(sieve(&["put", path, "key", "2"]).status.success());
    let refused = sieve(&["changes", path]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).expect("text");
    assert!(text.contains("keeps no changes; open it with Options::retain_changes"), "{text}");
    let future = ["changes", path, "--since", "99"];
    assert_eq!(sieve(&future).status.code(), Some(2));
}
