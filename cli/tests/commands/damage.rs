//! Messages about a damaged store: what happened, to which file, which command to run.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use sievedb::{Compression, KeyspaceOptions, Options};

use super::{failure, output, sieve, text};

/// Creates a store with a table of 1,000 keys and a log entry. Returns the path of the table.
fn store(path: &Path) -> PathBuf {
    let keyspace = KeyspaceOptions::new().compression(Compression::None);
    let db = Options::new().worker_threads(0).keyspace(keyspace).open(path).unwrap();
    for key in 0..1_000 {
        db.insert(format!("{key:04}"), [b'v'; 100]).unwrap();
    }
    db.flush().unwrap();
    db.insert("log", "1").unwrap();
    drop(db);
    let mut files = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|it| it == "sst")).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
fn flip(path: &Path, at: impl Fn(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a store")]
fn remove(path: &Path) {
    std::fs::remove_file(path).unwrap();
}

/// Returns the offset of the field `name` in the dump of `table`.
fn offset_of(table: &Path, name: &str) -> usize {
    let dump = output(&["dump", text(table)]);
    let line = dump.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
    usize::from_str_radix(&line.unwrap()[..8], 16).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn n16_compact_rebuilds_a_damaged_filter_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store_name = text(&path);
    let table = store(&path);
    let filter = offset_of(&table, "payload");
    flip(&table, |_| filter + 100);
    let verified = sieve(&["verify", store_name]);
    assert_eq!(verified.status.code(), Some(1));
    let errors = stderr(&verified);
    assert!(errors.contains("1 filter that cannot be used; no data is affected\n"), "{errors}");
    assert!(errors.contains(&format!("`sieve compact {store_name}` rebuilds")), "{errors}");
    assert!(!errors.contains("backup") && !errors.contains("repair"), "{errors}");
    assert_eq!(output(&["scan", store_name]).lines().count(), 1_001);

    output(&["compact", store_name]);
    let report = output(&["verify", store_name]);
    assert!(report.contains("0 problems"), "{report}");
    assert_eq!(output(&["scan", store_name]).lines().count(), 1_001);
}

#[test]
fn n16_damaged_table_and_filter_advise_repair() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let table = store(&path);
    let filter = offset_of(&table, "payload");
    flip(&table, |_| filter + 100);
    flip(&table, |_| 200);
    let verified = sieve(&["verify", text(&path)]);
    let errors = stderr(&verified);
    assert!(errors.contains("the store has 2 problems, listed above\n"), "{errors}");
    assert!(errors.contains(&format!("`sieve repair {} --into NEW`", text(&path))), "{errors}");
    assert!(!errors.contains("no data is affected"), "{errors}");
}

#[test]
fn n16_store_without_manifest_is_not_an_empty_store() {
    for (names, missing) in [
        (&["MANIFEST-000001"][..], "MANIFEST-000001: manifest is missing"),
        (&["CURRENT"], "CURRENT is missing"),
        (&["CURRENT", "MANIFEST-000001"], "CURRENT is missing"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("store"), dir.path().join("new"));
        store(&path);
        names.iter().for_each(|name| remove(&path.join(name)));
        let verified = sieve(&["verify", text(&path)]);
        assert_eq!(verified.status.code(), Some(1));
        let report = String::from_utf8(verified.stdout.clone()).unwrap();
        assert!(report.contains(missing), "{report}");
        assert!(!report.contains("0 tables"), "{report}");
        let errors = stderr(&verified);
        assert!(errors.contains("the manifest is missing or damaged: tables and log"), "{errors}");
        assert!(errors.contains(&format!("`sieve repair {} --into NEW`", text(&path))), "{errors}");
        let errors = failure(&["get", text(&path), "a"]);
        assert!(errors.contains(&format!("`sieve repair {} --into NEW`", text(&path))), "{errors}");
        sieve(&["repair", text(&path), "--into", text(&new)]);
        assert_eq!(output(&["scan", text(&new)]).lines().count(), 1_001);
    }
}

/// No command can open such a store; each names the table and the command to repair it.
#[test]
fn n16_table_with_damaged_footer_or_header_is_named() {
    let places: [fn(usize) -> usize; 2] = [|end| end - 20, |_| 20];
    for place in places {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let name = text(&path);
        let table = store(&path);
        flip(&table, place);
        for args in [
            &["get", name, "0001"][..],
            &["scan", name, "--skip-damaged"],
            &["put", name, "a", "1"],
            &["import", name],
            &["compact", name],
            &["stats", name],
        ] {
            let errors = failure(args);
            assert!(errors.contains(&format!("cannot open the store {name}")), "{errors}");
            assert!(errors.contains(&format!("the table {} is corrupt", text(&table))), "{errors}");
            assert!(errors.contains(&format!("`sieve repair {name} --into NEW`")), "{errors}");
        }
    }
}

#[test]
fn n16_missing_table_is_lost_data() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    remove(&store(&path));
    let verified = sieve(&["verify", text(&path)]);
    let report = String::from_utf8(verified.stdout.clone()).unwrap();
    assert!(report.contains("table is missing; keyspace \"default\", keys from"), "{report}");
    assert!(stderr(&verified).contains("`sieve repair "), "{}", stderr(&verified));
}

#[test]
fn n15_stopped_scan_suggests_skip_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let table = store(&path);
    flip(&table, |end| end / 2);
    let scanned = sieve(&["scan", text(&path), "--keys-only"]);
    assert_eq!(scanned.status.code(), Some(2));
    let printed = scanned.stdout.iter().filter(|&&byte| byte == b'\n').count();
    let errors = stderr(&scanned);
    let stopped = format!("the scan stopped at a damaged block after {printed} entries\n");
    assert!(printed > 0 && errors.contains(&stopped), "{errors}");
    assert!(errors.contains(&format!("the table {} is corrupt", text(&table))), "{errors}");
    assert!(errors.contains("help: add `--skip-damaged` to print what can be read"), "{errors}");

    let scanned = sieve(&["scan", text(&path), "--skip-damaged"]);
    let errors = stderr(&scanned);
    assert!(errors.contains("the output is incomplete: skipped 1 damaged block\n"), "{errors}");
    assert_eq!(scanned.status.code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn n16_unreadable_file_is_not_reported_as_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let table = store(&path);
    // A directory in place of the file cannot be read even by root.
    remove(&table);
    #[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a store")]
    std::fs::create_dir(&table).unwrap();
    let verified = sieve(&["verify", text(&path)]);
    assert_eq!(verified.status.code(), Some(1), "{}", stderr(&verified));
    let errors = stderr(&verified);
    assert!(errors.contains("files that cannot be read may still be intact"), "{errors}");
    assert!(!errors.contains("repair"), "{errors}");
}
