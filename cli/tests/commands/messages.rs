//! Messages contain what happened, the affected file or key, and advice.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use sievedb::{Db, Options};

use super::{failure, output, sieve, sieve_reading, text};

#[test]
fn n16_mistyped_keyspace_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    output(&["put", store, "a", "1"]);
    for args in [
        &["put", store, "a", "1", "--keyspace", "usres"][..],
        &["get", store, "a", "--keyspace", "usres"],
        &["import", store, "--keyspace", "usres"],
    ] {
        let error = failure(args);
        assert!(error.contains("no keyspace \"usres\""), "{error}");
        let lists = format!("`sieve keyspaces {store}` lists its keyspaces");
        assert!(error.contains(&lists), "{error}");
        assert_eq!(error.contains("`--create-keyspace` creates it"), args[0] != "get", "{error}");
    }
    assert_eq!(output(&["keyspaces", store]), "default\n");
    output(&["put", store, "a", "1", "--keyspace", "users", "--create-keyspace"]);
    assert_eq!(output(&["keyspaces", store]), "default\nusers\n");
}

#[test]
fn n16_import_keys_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let end = sieve_reading(&["import", store, "--keys-only"], b"b\na\n");
    assert_eq!(String::from_utf8(end.stdout).unwrap(), "imported: 2 entries\n");
    assert_eq!(output(&["scan", store]), "a\t\nb\t\n");
    let end = sieve_reading(&["import", store, "--keys-only"], b"c\tvalue\n");
    assert_eq!(end.status.code(), Some(2));
    assert!(String::from_utf8(end.stderr).unwrap().contains("line 1 is not an entry"));
}

#[test]
fn n16_lock_error_names_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let error = failure(&["put", text(dir.path()), "a", "1"]);
    assert!(error.contains(&format!("names process {}", std::process::id())), "{error}");
    let own = Db::open(dir.path()).unwrap_err().to_string();
    assert!(own.contains("names this process"), "{own}");
    drop(db);
    output(&["put", text(dir.path()), "a", "1"]);
}

#[test]
fn n16_interrupted_import_prints_its_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["import", store])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sieve.stdin.take().unwrap();
    // More than the pipe buffers: some entries are stored when the last write returns.
    let line = format!("key\t{}\n", "v".repeat(1_000));
    for _ in 0..1_000 {
        input.write_all(line.as_bytes()).unwrap();
    }
    let pid = sieve.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut message = String::new();
    BufReader::new(sieve.stderr.take().unwrap()).read_line(&mut message).unwrap();
    assert_eq!(sieve.wait().unwrap().code(), Some(130), "{message}");
    assert!(message.starts_with("sieve: interrupted: imported: "), "{message}");
    assert_eq!(output(&["scan", store, "--keys-only"]), "key\n");
}

/// Writes eight runs of 4 MiB that overlap, and two short ones of a keyspace before it.
fn write_runs(store: &Path) {
    let options = Options::new().worker_threads(0).background_rewrites(false);
    let db = options.open(store).unwrap();
    let short = db.keyspace("a").unwrap();
    for _ in 0..2 {
        short.insert("key", "value").unwrap();
        db.flush().unwrap();
    }
    for run in 0..8_u64 {
        for number in 0..4_096_u64 {
            let key = (run + 8 * number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value: Vec<u8> =
                (0..128).flat_map(|at| key.rotate_left(at % 61).to_le_bytes()).collect();
            db.insert(key.to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
    }
}

/// Interrupts `command` on a large store until its standard error contains one of `messages`.
fn interrupt_until(command: &str, messages: &[&str]) {
    let mut seen = Vec::new();
    for milliseconds in (1..10).map(|doublings| 1 << doublings) {
        let dir = tempfile::tempdir().unwrap();
        write_runs(dir.path());
        let sieve = Command::new(env!("CARGO_BIN_EXE_sieve"))
            .args([command, text(dir.path())])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut sieve = sieve.unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        let pid = sieve.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut message = String::new();
        sieve.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        // Before the handler is set, the signal kills the process; retries with a longer delay.
        if sieve.wait().unwrap().code() == Some(130) {
            assert!(message.starts_with("sieve: interrupted: "), "{message}");
            assert!(output(&["verify", text(dir.path())]).contains("0 problems"));
            if messages.iter().any(|part| message.contains(part)) {
                return;
            }
            seen.push(message);
        }
    }
    panic!("`sieve {command}` was never interrupted while it worked: {seen:?}")
}

#[cfg(unix)]
#[test]
fn n16_interrupted_compact_prints_its_count() {
    interrupt_until("compact", &["interrupted: 1 compaction wrote "]);
}

#[cfg(unix)]
#[test]
fn n16_interrupted_verify_prints_its_count() {
    interrupt_until("verify", &["verified, 0 problems so far"]);
}

/// Runs `sieve drop` on a copy of `store` with a file size limit. Returns its output and the
/// remaining keyspaces.
#[cfg(target_os = "linux")]
fn drop_users_within(file_bytes_max: u64, store: &Path) -> (Output, String) {
    let copy = tempfile::tempdir().unwrap();
    copy_files(store, copy.path());
    // With the signal ignored, appends beyond the limit fail with `EFBIG`.
    let script = "trap '' XFSZ; exec prlimit --fsize=$0 \"$1\" drop \"$2\" users";
    let limit = file_bytes_max.to_string();
    let args = ["-c", script, &limit, env!("CARGO_BIN_EXE_sieve"), text(copy.path())];
    let dropped = Command::new("sh").args(args).output().unwrap();
    (dropped, output(&["keyspaces", text(copy.path())]))
}

#[cfg(target_os = "linux")]
fn copy_files(from: &Path, to: &Path) {
    for entry in from.read_dir().unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn n16_failed_drop_reports_whether_the_keyspace_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    output(&["put", store, "a", "1", "--keyspace", "users", "--create-keyspace"]);
    let mut failed = 0;
    // Starts at the length of the manifest, to which each step of the drop appends.
    let manifest = dir.path().join("MANIFEST-000001");
    for limit in (manifest.metadata().unwrap().len()..).step_by(16) {
        let (dropped, left) = drop_users_within(limit, dir.path());
        let message = String::from_utf8(dropped.stderr).unwrap();
        let is_gone = left == "default\n";
        if dropped.status.success() {
            assert!(is_gone && message.is_empty(), "{limit}: {message}");
            break;
        }
        assert_eq!(dropped.status.code(), Some(2), "{limit}: {message}");
        assert!(message.contains("File too large"), "{limit}: {message}");
        let reports_gone =
            message.contains("the keyspace \"users\" is dropped, but a later write failed");
        assert_eq!(reports_gone, is_gone, "{limit}: {message}");
        failed += 1;
    }
    assert!(failed > 0, "each step had room");
}

#[test]
fn n16_damage_messages_give_advice() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    output(&["put", store, "a", "1"]);
    #[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a store")]
    std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let end = sieve(&["verify", store]);
    let message = String::from_utf8(end.stderr).unwrap();
    assert_eq!(end.status.code(), Some(1));
    assert!(message.contains("restore a backup, or copy what can be read"), "{message}");
    let message = failure(&["get", store, "a"]);
    assert!(message.contains("`sieve verify ") && message.contains("`sieve repair "), "{message}");
}

#[test]
fn n16_create_new_refuses_an_existing_store() {
    let dir = tempfile::tempdir().unwrap();
    let create = || Options::new().create_new(true).create_if_missing(false).open(dir.path());
    drop(create().unwrap());
    let error = create().unwrap_err();
    assert!(matches!(error, sievedb::Error::StoreExists { .. }), "{error:?}");
    let db = Db::open(dir.path()).unwrap();
    assert!(db.keyspace_exists("default").unwrap() && !db.keyspace_exists("users").unwrap());
    let error = db.open_keyspace("users").unwrap_err();
    assert!(matches!(&error, sievedb::Error::NoKeyspace { name } if name == "users"), "{error:?}");
    assert_eq!(db.keyspaces().unwrap(), ["default"]);
}

#[test]
fn n16_explain_reports_damage_as_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let store = text(dir.path());
    let db = Options::new().worker_threads(0).open(dir.path()).unwrap();
    for key in 0..1_000 {
        db.insert(format!("{key:04}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let tables = dir.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let table = tables.into_iter().find(|path| path.extension().is_some_and(|it| it == "sst"));
    damage(&table.unwrap());
    let end = sieve(&["explain", store, "0000"]);
    assert_eq!(end.status.code(), Some(2), "{end:?}");
    let message = String::from_utf8(end.stdout).unwrap();
    assert!(
        message.contains("\n  failed: ") && message.contains("is corrupt near byte 64"),
        "{message}"
    );
    assert!(message.contains("unknown, a block cannot be read: "), "{message}");
}

#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a table")]
fn damage(table: &Path) {
    let mut bytes = std::fs::read(table).unwrap();
    bytes[70] ^= 1;
    std::fs::write(table, bytes).unwrap();
}
