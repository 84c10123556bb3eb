//! Read-only commands change no file, need no write permission and share the store.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::Path};

use sievedb::Options;

use super::{exits_with_1_silently, failure, output, text};

/// Returns the names and bytes of the files of a store.
#[expect(clippy::disallowed_methods, reason = "reads files without the engine")]
fn contents(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = store.read_dir().expect("the store is there");
    let paths = entries.map(|entry| entry.expect("the directory is listed").path());
    let read = |path: &Path| std::fs::read(path).expect("a file of the store");
    paths.map(|path| (text(&path).to_owned(), read(&path))).collect()
}

/// Sets or removes write permission for the directory and its files.
fn set_writable(store: &Path, writable: bool) {
    let set = |path: &Path, mode| {
        let rights = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, rights).expect("the owner changes them");
    };
    for path in contents(store).keys() {
        set(path.as_ref(), if writable { 0o644 } else { 0o444 });
    }
    set(store, if writable { 0o755 } else { 0o555 });
}

/// All entries are in the log. Root ignores permissions; for it the test only compares files.
#[test]
fn read_only_commands_change_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    for key in ["a", "b", "c"] {
        output(&["put", store, key, "1"]);
    }
    let before = contents(&path);
    set_writable(&path, false);
    assert_eq!(output(&["get", store, "c"]), "1\n");
    exits_with_1_silently(&["get", store, "d"]);
    assert_eq!(output(&["scan", store, "--keys-only"]), "a\nb\nc\n");
    assert!(output(&["explain", store, "c"]).contains("memtable"));
    let stats = output(&["stats", store]);
    assert!(stats.contains("log: 3 segments of ") && !stats.contains("read-only"), "{stats}");
    assert!(output(&["verify", store]).contains("0 problems"));
    for file in before.keys().filter(|file| !file.ends_with("LOCK")) {
        output(&["dump", file]);
    }
    set_writable(&path, true);
    assert!(contents(&path) == before, "a file has changed");
}

#[test]
fn read_only_commands_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    output(&["put", store, "a", "1"]);
    let reader = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(output(&["get", store, "a"]), "1\n");
    assert!(output(&["verify", store]).contains("0 problems"));
    let refused = failure(&["put", store, "a", "2"]);
    assert!(refused.contains("is open in another process"), "{refused}");
    assert!(refused.contains("\n  help: close it there") && refused.ends_with('\n'), "{refused}");
    assert_eq!(reader.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    drop(reader);
    output(&["put", store, "a", "2"]);
    let writer = Options::new().open(&path).unwrap();
    assert!(failure(&["verify", store]).contains("is open in another process"));
    writer.keyspace("users").unwrap().insert("b", "3").unwrap();
    assert_eq!(output(&["get", store, "a"]), "2\n", "beside the writer");
    assert_eq!(output(&["scan", store, "--keyspace", "users"]), "b\t3\n");
    assert_eq!(output(&["keyspaces", store]), "default\nusers\n");
    drop(writer);
    assert_eq!(output(&["get", store, "a"]), "2\n");
}
