//! `migrate`: a database of RocksDB becomes a store.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use super::{failure, output, text};

/// Returns a database that RocksDB wrote.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrate/tests/fixtures").join(name)
}

/// Returns the entries of a column family by RocksDB, as `sieve scan --hex` prints them.
fn expected(name: &str, family: &str) -> Vec<String> {
    let text = std::fs::read_to_string(fixture(name).join("EXPECTED")).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(family)?.strip_prefix('\t'));
    lines.map(str::to_lowercase).collect()
}

#[test]
fn each_column_family_becomes_a_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["families", "merges", "version7", "blobs"] {
        let store = dir.path().join(name);
        let report = output(&["migrate", text(&fixture(name)), text(&store)]);
        let families = match name {
            "families" | "version7" => &["default", "one", "two"][..],
            _ => &["default"],
        };
        assert_eq!(output(&["keyspaces", text(&store)]), families.join("\n") + "\n");
        for family in families {
            let scan = output(&["scan", text(&store), "--hex", "--keyspace", family]);
            let want = expected(name, family);
            assert_eq!(scan.lines().collect::<Vec<_>>(), want, "{name}: {family}");
            let row = report.lines().find(|line| line.starts_with(&format!("| {family} ")));
            assert!(row.is_some_and(|row| row.contains(&format!(" {} |", want.len()))), "{report}");
        }
    }
}

#[test]
fn a_reversed_order_becomes_ascending() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    output(&["migrate", text(&fixture("reverse")), text(&store), "--from", "rocksdb"]);
    let mut want = expected("reverse", "default");
    want.reverse();
    assert_eq!(output(&["scan", text(&store), "--hex"]).lines().collect::<Vec<_>>(), want);
}

#[test]
fn unsupported_databases_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let (source, store) = (fixture("version2"), text(&store));
    output(&["migrate", text(&source), store]);
    let errors = failure(&["migrate", text(&source), store]);
    assert!(errors.contains("already contains a store; use another directory"), "{errors}");
    let new = dir.path().join("new");
    let errors = failure(&["migrate", store, text(&new)]);
    assert!(errors.contains("not a RocksDB directory"), "{errors}");
    let errors = failure(&["migrate", text(&fixture("zlib")), text(&new)]);
    assert!(errors.contains("compression Zlib"), "{errors}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "damages a database")]
fn damage_is_reported_with_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(fixture("version6")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "sst") {
            bytes[100] ^= 1;
        }
        std::fs::write(source.join(path.file_name().unwrap()), bytes).unwrap();
    }
    let store = dir.path().join("store");
    let errors = failure(&["migrate", text(&source), text(&store)]);
    assert!(errors.contains(".sst is corrupt at byte 0"), "{errors}");
    assert!(errors.contains("the incomplete store was deleted"), "{errors}");
    assert!(!store.exists() && !dir.path().join("store.partial").exists());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "makes leftovers of an interrupted migration")]
fn interrupted_migration_is_not_mistaken_for_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let (source, store) = (fixture("version2"), dir.path().join("store"));
    let partial = dir.path().join("store.partial");
    std::fs::create_dir(&partial).unwrap();
    let errors = failure(&["migrate", text(&source), text(&store)]);
    assert!(errors.contains("store.partial exists"), "{errors}");
    assert!(!store.exists());
    std::fs::remove_dir(&partial).unwrap();
    // An empty directory is replaced, and one with files is kept.
    std::fs::create_dir(&store).unwrap();
    output(&["migrate", text(&source), text(&store)]);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("file"), "a").unwrap();
    let errors = failure(&["migrate", text(&source), text(&other)]);
    assert!(errors.contains("other exists"), "{errors}");
}

/// Before the copy, which takes hours, and not by the rename after it.
#[test]
fn directory_that_cannot_be_replaced_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (empty, link) = (dir.path().join("empty"), dir.path().join("link"));
    #[expect(clippy::disallowed_methods, reason = "makes a directory that is not a store")]
    std::fs::create_dir(&empty).unwrap();
    symlink(&empty, &link).unwrap();
    let source = fixture("version2");
    let errors = failure(&["migrate", text(&source), text(&link)]);
    assert!(errors.contains(&format!("name a new directory, such as {}/new", text(&link))));
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
    let end = sieve.args(["migrate", text(&source), "."]).current_dir(&empty).output().unwrap();
    let errors = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(2), "{errors}");
    assert!(errors.contains("name a new directory, such as ./new"), "{errors}");
    assert_eq!(empty.read_dir().unwrap().count(), 0);
    assert_eq!(dir.path().read_dir().unwrap().count(), 2, "no NAME.partial is left");
    output(&["migrate", text(&source), text(&link.join("new"))]);
}
