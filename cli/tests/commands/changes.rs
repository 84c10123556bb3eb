//! `sieve changes`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

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

    let hex = sieve(&["changes", path, "--hex", "--since", &since.to_string()]);
    let text = String::from_utf8(hex.stdout).expect("text");
    assert_eq!(text, format!("{}\tdefault\tinsert\t6b6579\t32\n", since + 1));
    let json = sieve(&["changes", path, "--json", "--since", &since.to_string()]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one line of JSON");
    assert_eq!(json["first"], since + 1);
    assert_eq!(json["changes"][0]["kind"], "insert");
    assert_eq!(json["changes"][0]["value"], "2");
}

#[test]
fn store_without_changes_is_an_error() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    assert!(sieve(&["put", path, "key", "2"]).status.success());
    let refused = sieve(&["changes", path]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).expect("text");
    assert!(text.contains("keeps no changes; its program must retain them"), "{text}");
    let future = ["changes", path, "--since", "99"];
    assert_eq!(sieve(&future).status.code(), Some(2));
}

/// The writer flushes, which moves segments out of the log, and is opened again.
#[test]
fn changes_are_followed_beside_a_writer() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    let options = Options::new().retain_changes(ChangeRetention::bytes(1 << 20));
    let mut db = options.clone().open(path).expect("a new store");
    let follow = ["changes", path, "--follow", "--since", &db.snapshot().sequence().to_string()];
    let sieve =
        Command::new(env!("CARGO_BIN_EXE_sieve")).args(follow).stdout(Stdio::piped()).spawn();
    let mut sieve = sieve.expect("the binary was built");
    let mut lines = BufReader::new(sieve.stdout.take().expect("it is piped")).lines();
    for number in 0..6 {
        db.insert("key", number.to_string()).expect("there is room");
        let line = lines.next().expect("it goes on").expect("text");
        assert!(line.ends_with(&format!("\tdefault\tinsert\tkey\t{number}")), "{line}");
        match number {
            1 | 3 => db.flush().expect("there is room"),
            2 => {
                db.close().expect("there is room");
                db = options.clone().open(path).expect("nothing locks it");
            }
            _ => {}
        }
    }
    sieve.kill().expect("it runs");
    sieve.wait().expect("it was started");
}

/// Exits with 130, as other interrupted commands do, and names the position.
#[cfg(unix)]
#[test]
fn interrupt_ends_following() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    let options = Options::new().retain_changes(ChangeRetention::bytes(1 << 20));
    let db = options.open(path).expect("a new store");
    let since = db.snapshot().sequence();
    db.insert("key", "1").expect("there is room");
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["changes", path, "--follow", "--since", &since.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut lines = BufReader::new(sieve.stdout.take().expect("piped")).lines();
    lines.next().expect("it prints").expect("text");
    let sent = Command::new("kill").args(["-INT", &sieve.id().to_string()]).status();
    assert!(sent.expect("it is installed").success());
    let end = sieve.wait_with_output().expect("it was started");
    let errors = String::from_utf8(end.stderr).expect("text");
    assert_eq!(end.status.code(), Some(130), "{errors}");
    let next = db.snapshot().sequence();
    assert!(errors.contains(&format!("continue with --since {next}\n")), "{errors}");
}

/// Ctrl-C twice ends a command that is blocked by its output.
#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_a_blocked_command() {
    let dir = tempfile::tempdir().expect("there is room");
    let path = dir.path().to_str().expect("text");
    let options = Options::new().retain_changes(ChangeRetention::bytes(1 << 20));
    let db = options.open(path).expect("a new store");
    for number in 0..100_u8 {
        // More than a pipe holds.
        db.insert([number], vec![b'v'; 10_000]).expect("there is room");
    }
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["changes", path, "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut printed = BufReader::new(sieve.stdout.take().expect("piped"));
    printed.fill_buf().expect("it prints");
    let pid = sieve.id().to_string();
    for _ in 0..3000 {
        if sieve.try_wait().expect("a child").is_some() {
            break;
        }
        // Two signals at once may be delivered as one.
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.expect("it is installed").success());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    sieve.kill().expect("it was started");
    assert_eq!(sieve.wait().expect("it was started").code(), Some(130));
}
