//! `export`: formats that `import` reads, and tables for RocksDB.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::disallowed_methods, reason = "reads exported files")]

use std::{fs, path::Path};

use sievedb::Options;

use super::{failure, output, sieve_into_closed_pipe, sieve_reading, text};

/// Writes entries with all bytes, and what JSON and CSV quote, into two keyspaces.
fn fill(path: &Path) {
    let db = Options::new().worker_threads(0).open(path).unwrap();
    let other = db.keyspace("a,\"b\"\n/ä").unwrap();
    db.keyspace("empty").unwrap();
    let mut batch = db.batch();
    for byte in 0..=u8::MAX {
        db.insert([byte], [byte, b'\\', b'x', b'"', b',', b'\n']).unwrap();
        batch.insert(&other, [0xff, byte], [byte].repeat(byte.into())).unwrap();
    }
    let texts = ["", "a,b", "\"", "\"\"", " a ", "\r\n", "\t", r"\x41", "ä\u{202e}", "{\"key\":1}"];
    for text in texts {
        batch.insert(&other, text, text.repeat(2)).unwrap();
    }
    batch.insert(&other, vec![b'k'; 9000], vec![0xfe; 70_000]).unwrap();
    batch.commit(sievedb::Durability::OsBuffer).unwrap();
    db.insert("", "").unwrap();
}

fn keyspaces(store: &str) -> Vec<String> {
    output(&["keyspaces", store]).lines().map(str::to_owned).collect()
}

#[test]
fn exports_are_imported_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fill(&source);
    let source = text(&source);
    let tables = dir.path().join("tables");
    let report = ["export", source, "--all-keyspaces", "--format", "rocksdb", "-o", text(&tables)];
    let report = output(&report);
    assert!(report.contains("| default") && report.contains(" 257 "), "{report}");
    for (format, notation) in [("json", ""), ("json", "--hex"), ("csv", ""), ("csv", "--hex")] {
        let name = format!("{format}{notation}");
        let file = dir.path().join(&name);
        let mut args = vec!["export", source, "--all-keyspaces", "--format", format];
        args.extend((!notation.is_empty()).then_some(notation));
        let printed = output(&args);
        args.extend(["--output", text(&file)]);
        // The digests of all formats are equal.
        assert_eq!(output(&args), report, "{name}");
        assert_eq!(fs::read_to_string(&file).unwrap(), printed, "{name}");
        assert!(failure(&args).contains("exists"), "{name}");

        let copy = dir.path().join(format!("copy of {name}"));
        let mut import = vec!["import", text(&copy), "--format", format, "--create-keyspace"];
        import.extend((!notation.is_empty()).then_some(notation));
        let imported = sieve_reading(&import, printed.as_bytes());
        assert!(imported.status.success(), "{imported:?}");
        assert_eq!(imported.stdout, b"imported: 524 entries\n", "{name}");
        for keyspace in keyspaces(source).iter().filter(|name| *name != "empty") {
            let scan = |store| output(&["scan", store, "--keyspace", keyspace]);
            assert!(scan(text(&copy)) == scan(source), "{name}: {keyspace}");
        }
    }
}

#[test]
fn export_into_a_closed_pipe_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fill(&source);
    for format in ["json", "csv"] {
        let args = ["export", text(&source), "--all-keyspaces", "--format", format];
        let (code, errors) = sieve_into_closed_pipe(&args, 1);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn records_of_one_keyspace_go_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    let (source, copy) = (text(&source), text(&copy));
    for key in ["a", "b1", "b2", "c"] {
        output(&["put", source, key, "1"]);
    }
    let json = output(&["export", source, "--format", "json", "--prefix", "b"]);
    assert_eq!(json, "{\"key\":\"b1\",\"value\":\"1\"}\n{\"key\":\"b2\",\"value\":\"1\"}\n");
    let csv = output(&["export", source, "--format", "csv", "--from", "b2", "--to", "c"]);
    assert_eq!(csv, "key,value\nb2,1\n");
    let import = ["import", copy, "--keyspace", "x", "--create-keyspace", "--format", "csv"];
    assert!(sieve_reading(&import, csv.as_bytes()).status.success());
    assert_eq!(output(&["scan", copy, "--keyspace", "x"]), "b2\t1\n");
    // Columns in another order, and no rows at all.
    let rows = "value,keyspace,key\n2,x,b2\n3,default,d\n";
    let import = ["import", copy, "--format", "csv"];
    assert!(sieve_reading(&import, rows.as_bytes()).status.success());
    assert!(sieve_reading(&import, b"").status.success());
    assert_eq!(output(&["scan", copy, "--keyspace", "x"]), "b2\t2\n");
    assert_eq!(output(&["scan", copy]), "d\t3\n");
}

#[test]
fn records_that_are_no_entries_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let cases: [(&str, &[u8], &str); 12] = [
        ("json", b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"a\"}\n", "line 2"),
        ("json", b"{\"key\":\"a\",\"value\":1}\n", "line 1"),
        ("json", b"{\"key\":\"a\",\"value\":\"1\",\"ttl\":1}\n", "unknown field `ttl`"),
        ("json", b"\n", "line 1"),
        ("json", b"{\"key\":\"\\\\q\",\"value\":\"1\"}\n", "line 1"),
        ("json", b"{\"keyspace\":\"no\",\"key\":\"\",\"value\":\"\"}\n", "cannot store line 1;"),
        ("json", b"{\"keyspace\":\"no\",\"key\":\"\",\"value\":\"\"}\n", "no keyspace \"no\""),
        ("csv", b"a,b\n1,2\n", "name the columns"),
        ("csv", b"key,value,ttl\n1,2,3\n", "name the columns"),
        ("csv", b"key,value\n1,2\n1\n", "line 3 is not an entry: 1 fields, and 2"),
        ("csv", b"key,value\n\xff,2\n", "line 2 is not an entry: the row is not UTF-8"),
        ("csv", b"key,value\n\\q,2\n", "line 2"),
    ];
    for (format, input, want) in cases {
        let refused = sieve_reading(&["import", text(&store), "--format", format], input);
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{format}: {errors}");
        assert!(errors.contains(want), "{format}: {errors}");
    }
    assert_eq!(
        output(&["scan", text(&store)]),
        "a\t1\n1\t2\n".split_inclusive('\n').rev().collect::<String>()
    );
}

/// They go to the keyspace of the command, as records of JSON without a name do.
#[test]
fn rows_without_a_keyspace_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let rows = b"keyspace,key,value\n,a,1\ndefault,b,2\n";
    let end = sieve_reading(&["import", text(&store), "--format", "csv"], rows);
    assert!(end.status.success(), "{end:?}");
    assert_eq!(output(&["scan", text(&store)]), "a\t1\nb\t2\n");
}

#[test]
fn tables_have_a_directory_for_each_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fill(&source);
    let tables = dir.path().join("tables");
    let export = ["export", text(&source), "--all-keyspaces", "--format", "rocksdb"];
    let errors = failure(&export);
    assert!(errors.contains("--output"), "{errors}");
    output(&[&export[..], &["--output", text(&tables), "--no-compression"]].concat());
    let mut names: Vec<_> = fs::read_dir(&tables)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["a%2c%22b%22%0a%2f%c3%a4", "default", "empty"]);
    assert!(tables.join("default/000001.sst").exists());
    assert_eq!(fs::read_dir(tables.join("empty")).unwrap().count(), 0);
    assert!(!dir.path().join("tables.partial").exists());
    // An interrupted export is neither mistaken for a complete one nor replaced.
    let other = dir.path().join("other");
    fs::create_dir(dir.path().join("other.partial")).unwrap();
    let errors = failure(&[&export[..], &["--output", text(&other)]].concat());
    assert!(errors.contains("other.partial exists"), "{errors}");
}
