//! Commands that read and write entries.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use sievedb::{
    Compression, FilterPolicy, HistoryLength, KeyspaceOptions, Options, PrefixExtractor,
};

use super::{exits_with_1_silently, failure, output, sieve, sieve_reading, text};

#[test]
fn written_entries_are_read_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    for (key, value) in [("b", "2"), ("a", "1"), (r"c\x00\n", r"\xff\\"), ("d", "")] {
        output(&["put", store, key, value]);
    }
    output(&["put", store, "a", "elsewhere", "--keyspace", "other", "--create-keyspace"]);
    output(&["put", store, "b", "two"]);
    output(&["rm", store, "d"]);
    output(&["rm", store, "never there"]);
    for key in ["x", "x1", "y", "y1"] {
        output(&["put", store, key, ""]);
    }
    output(&["rm", store, "x", "--prefix"]);
    output(&["rm", store, "y", "--to", "z"]);

    let cases: [(&str, &[&str], &str); 11] = [
        ("a value", &["get", store, "a"], "1\n"),
        ("the newer value", &["get", store, "b"], "two\n"),
        ("another keyspace", &["get", store, "a", "--keyspace", "other"], "elsewhere\n"),
        ("any bytes", &["get", store, r"c\x00\x0a"], "\\xff\\\\\n"),
        ("a raw value", &["get", store, "a", "--raw"], "1"),
        ("all", &["scan", store], "a\t1\nb\ttwo\nc\\x00\\n\t\\xff\\\\\n"),
        ("backwards", &["scan", store, "--reverse", "--keys-only"], "c\\x00\\n\nb\na\n"),
        ("bounds", &["scan", store, "--from", "a", "--to", "b"], "a\t1\n"),
        ("a prefix", &["scan", store, "--prefix", "b"], "b\ttwo\n"),
        ("one", &["scan", store, "--limit", "1", "--reverse", "--keys-only"], "c\\x00\\n\n"),
        ("crossed bounds", &["scan", store, "--from", "b", "--to", "a"], ""),
    ];
    for (name, args, want) in cases {
        assert_eq!(output(args), want, "{name}");
    }

    let in_hex = ["scan", store, "--hex", "--from", "6200", "--keys-only"];
    assert_eq!(output(&in_hex), "63000a\n");
    output(&["put", store, "--hex", "c3a4", "ff"]);
    assert_eq!(output(&["scan", store, "--prefix", "ä"]), "ä\t\\xff\n");

    exits_with_1_silently(&["get", store, "d"]);
    let stats: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
    assert_eq!(stats["keyspaces"][0]["name"], "default");
    assert_eq!(stats["keyspaces"][1]["name"], "other");
    assert!(output(&["stats", store]).contains("keyspace \"other\""));
}

#[test]
fn history_of_a_keyspace_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    let db = Options::new().open(&path).unwrap();
    let options = KeyspaceOptions::new().keep_history(HistoryLength::Sequences(2));
    let prices = db.keyspace_with("prices", &options).unwrap();
    for price in ["3", "4", "5"] {
        prices.insert("tea", price).unwrap();
    }
    prices.remove("tea").unwrap();
    let last = db.snapshot().sequence();
    drop((prices, db));

    let history = output(&["history", store, "tea", "--keyspace", "prices"]);
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split('\t').collect()).collect();
    let columns = |at: usize| lines.iter().map(|line| line[at]).collect::<Vec<_>>();
    assert_eq!(columns(0), [&*last.to_string(), &*(last - 1).to_string(), "-"]);
    assert!(columns(1)[0].parse::<f64>().unwrap() > 1e9, "{history}");
    let values: Vec<_> = lines.iter().map(|line| line.get(2).copied()).collect();
    assert_eq!(values, [None, Some("5"), Some("4")]);
    let get =
        |at: &str| ["get", store, "tea", "--keyspace", "prices", "--at", at].map(str::to_owned);
    let args = get(&(last - 1).to_string());
    assert_eq!(output(&args.each_ref().map(|arg| &**arg)), "5\n");
    let args = get("@1.5");
    let refused = failure(&args.each_ref().map(|arg| &**arg));
    let want = "Unix time 1.500 is not in the history of the keyspace \"prices\"";
    assert!(refused.contains(want), "{refused}");
    exits_with_1_silently(&["history", store, "coffee", "--keyspace", "prices"]);
    assert!(failure(&["history", store, "tea"]).contains("\"default\" has no history"));
}

#[test]
fn invalid_escapes_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let cases: [&[&str]; 4] = [
        &["put", text(&path), r"\q", ""],
        &["put", text(&path), "a", "abc", "--hex"],
        &["get", text(&path), "zz", "--hex"],
        &["get", text(&path), "61", "--hex", "--raw"],
    ];
    for args in cases {
        assert_eq!(sieve(args).status.code(), Some(2), "{args:?}");
    }
    assert!(!path.exists());
}

#[test]
fn put_reads_a_value_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    let value = b"hi\n\0\xff\t";
    assert!(sieve_reading(&["put", store, "key", "-"], value).status.success());
    assert_eq!(sieve(&["get", store, "key", "--raw"]).stdout, value);
    output(&["put", store, "key", r"\x2d"]);
    assert_eq!(output(&["get", store, "key"]), "-\n");
}

/// Lines in any order, of which the last one of a key counts, are added at once or not at all.
#[test]
fn import_sorts_and_ingests() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    let import = ["import", store, "--ingest"];
    let end = sieve_reading(&import, b"c\t1\na\t2\nc\t3\nb\t4\n");
    let said = String::from_utf8_lossy(&end.stdout);
    assert_eq!(said, "imported: 3 entries in 1 table\n", "{end:?}");
    assert_eq!(output(&["scan", store]), "a\t2\nb\t4\nc\t3\n");
    let end = sieve_reading(&import, b"d\t1\nno entry\n");
    assert_eq!(end.status.code(), Some(2), "{end:?}");
    assert_eq!(output(&["scan", store, "--keys-only"]), "a\nb\nc\n");
    let json = br#"{"keyspace":"other","key":"z","value":"1"}"#;
    let named = [&import[..], &["--format", "json", "--create-keyspace"]].concat();
    let end = sieve_reading(&named, json);
    assert!(end.status.success(), "{end:?}");
    assert_eq!(output(&["scan", store, "--keyspace", "other"]), "z\t1\n");
    let end = sieve_reading(&[&import[..], &["--keys-only"]].concat(), b"x\n");
    assert!(!end.status.success(), "{end:?}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "sorted entries are removed");
}

/// The default directory for sorted entries is beside the store, and its user's is empty.
#[test]
fn sorted_entries_are_outside_of_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    output(&["put", text(&store), "a", "1"]);
    // Sorting needs the directory `store.import`, which cannot be created.
    #[expect(clippy::disallowed_methods, reason = "makes a file that is not of a store")]
    std::fs::write(dir.path().join("store.import"), "").unwrap();
    for path in ["store/", "store/.", "store/../store/"] {
        let import = ["import", text(&dir.path().join(path)), "--ingest"].map(str::to_owned);
        let end = sieve_reading(&import.each_ref().map(String::as_str), b"b\t1\n");
        let errors = String::from_utf8_lossy(&end.stderr).into_owned();
        assert_eq!(end.status.code(), Some(2), "{path}: {errors}");
        assert!(errors.contains("store.import"), "{path}: {errors}");
    }
    let full = dir.path().join("full");
    #[expect(clippy::disallowed_methods, reason = "makes a directory that is not a store")]
    std::fs::create_dir_all(full.join("work")).unwrap();
    let import = ["import", text(&store), "--ingest", "--temporary", text(&full)];
    let end = sieve_reading(&import, b"b\t1\n");
    let errors = String::from_utf8_lossy(&end.stderr);
    assert!(errors.contains("is not empty: it contains \"work\""), "{errors}");
    assert!(full.join("work").exists());
}

/// An import that fails with the store names the line.
#[test]
fn import_names_the_line_that_a_full_device_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let lines: String = (0..3_000).map(|n| format!("{n}\t{}\n", "v".repeat(1_000))).collect();
    // Ignores the signal, so that writes above the limit fail.
    let limited = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" import \"$1\"";
    let mut sieve = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_sieve"), text(&store)])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The process may exit before it has read all input.
    let _ = std::io::Write::write_all(&mut sieve.stdin.take().unwrap(), lines.as_bytes());
    let end = sieve.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&end.stderr);
    assert_eq!(end.status.code(), Some(2), "{errors}");
    let number =
        errors.strip_prefix("sieve: cannot store line ").and_then(|it| it.split_once("; "));
    let (number, rest) = number.expect(&errors);
    assert!(rest.starts_with("all earlier lines are stored"), "{errors}");
    let stored = sievedb::Db::open(&store).unwrap().len().unwrap();
    assert_eq!(number, (stored + 1).to_string(), "{errors}");
}

#[test]
fn import_reads_the_output_of_scan() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (from, to, third) = (path("from"), path("to"), path("third"));
    let db = sievedb::Db::open(&from).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    let entries: [(&[u8], &[u8]); 5] = [
        (b"", b"empty key"),
        (b"empty value", b""),
        (&all, &all),
        (b"a\tb", b"c\nd"),
        (b"-", b"-"),
    ];
    for (key, value) in entries {
        db.insert(key, value).unwrap();
    }
    drop(db);
    for notation in [&[][..], &["--hex"]] {
        let scanned = output(&[&["scan", text(&from)], notation].concat());
        let import =
            [&["import", text(&to), "--keyspace", "copy", "--create-keyspace"], notation].concat();
        let end = sieve_reading(&import, scanned.as_bytes());
        assert!(end.status.success(), "{end:?}");
        assert_eq!(String::from_utf8_lossy(&end.stdout), "imported: 5 entries\n");
        let again = output(&[&["scan", text(&to), "--keyspace", "copy"], notation].concat());
        assert_eq!(scanned, again);
        output(&["drop", text(&to), "copy"]);
    }
    let long_key = [b"a\t1\n", &[b'k'; 70_000][..], b"\t2\n"].concat();
    let cases: [(&str, &[u8], &str); 6] = [
        ("a long key", &long_key, "cannot store line 2"),
        ("no tab", b"a\t1\nb\n", "line 2 is not an entry: no tab after the key"),
        ("a bad escape", b"a\t1\nb\t\\q\n", "line 2 is not an entry: write "),
        (
            "a carriage return",
            b"a\t1\nb\t2\r\n",
            "line 2 is not an entry: write the carriage return",
        ),
        ("a second tab", b"a\t1\nb\t2\t3\n", "line 2 is not an entry: a second tab"),
        ("no text", b"a\t1\nb\t\xff\n", "line 2 is not an entry: the line is not UTF-8"),
    ];
    for (name, input, error) in cases {
        let end = sieve_reading(&["import", text(&third)], input);
        assert_eq!(end.status.code(), Some(2), "{name}");
        assert_eq!(end.stdout, b"", "{name}");
        assert!(String::from_utf8_lossy(&end.stderr).contains(error), "{name}: {end:?}");
        assert_eq!(output(&["scan", text(&third)]), "a\t1\n", "{name}: the line before is stored");
    }
    let end = sieve_reading(&["import", text(&third)], br"b	2\t3\r");
    assert_eq!(String::from_utf8_lossy(&end.stdout), "imported: 1 entry\n", "{end:?}");
    assert_eq!(output(&["get", text(&third), "b", "--raw"]), "2\t3\r");
    let end = sieve_reading(&["import", text(&third)], b"");
    assert_eq!(String::from_utf8_lossy(&end.stdout), "imported: 0 entries\n", "{end:?}");
}

#[test]
fn keyspaces_are_listed_compacted_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    for args in [&["keyspaces", store][..], &["compact", store], &["drop", store, "a"]] {
        assert!(failure(args).contains("there is no store"), "{args:?}");
    }
    // Each process flushes the log of the previous one into a table.
    for number in 0..3 {
        output(&["put", store, &format!("key{number}"), "value"]);
        output(&["put", store, "key", "value", "--keyspace", "other", "--create-keyspace"]);
    }
    assert_eq!(output(&["keyspaces", store]), "default\nother\n");
    assert!(failure(&["compact", store, "--keyspace", "none"]).contains("no keyspace \"none\""));
    output(&["compact", store, "--from", "key1", "--to", "key2"]);
    assert_eq!(output(&["scan", store, "--keys-only"]), "key0\nkey1\nkey2\n");
    output(&["compact", store]);
    let stats: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
    assert_eq!(stats["keyspaces"][0]["tables"], 1, "{stats}");
    output(&["drop", store, "other"]);
    assert_eq!(output(&["keyspaces", store]), "default\n");
    assert_eq!(output(&["scan", store, "--keys-only"]), "key0\nkey1\nkey2\n");
    assert!(failure(&["drop", store, "other"]).contains("no keyspace \"other\""));
    assert!(failure(&["drop", store, "default"]).contains("cannot be dropped"));
    output(&["put", store, "key", "value", "--create-keyspace", "--keyspace", "a\nb\u{1b}"]);
    output(&["put", store, "key", "value", "--create-keyspace", "--keyspace", r"logs\\2026"]);
    // Escaped names are accepted as arguments.
    assert_eq!(output(&["keyspaces", store]), "a\\nb\\x1b\ndefault\nlogs\\\\2026\n");
    assert_eq!(output(&["get", store, "key", "--keyspace", r"a\nb\x1b"]), "value\n");
    output(&["drop", store, r"a\nb\x1b"]);
    assert_eq!(output(&["keyspaces", store]), "default\nlogs\\\\2026\n");
}

#[test]
fn closed_pipe_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    output(&["put", text(&path), "a", &"v".repeat(100_000)]);
    let mut scan = Command::new(env!("CARGO_BIN_EXE_sieve"))
        .args(["scan", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(scan.stdout.take());
    let end = scan.wait_with_output().unwrap();
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
fn errors_are_printed_with_causes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    output(&["put", text(&path), "a", "1"]);
    std::fs::write(path.join("CURRENT"), "damaged").unwrap();
    let error = failure(&["get", text(&path), "a"]);
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[0].starts_with("sieve: cannot open the store "), "{error}");
    assert!(lines[1].starts_with("  caused by: ") && lines[1].contains("CURRENT"), "{error}");
    assert!(lines[2].starts_with("  caused by: length of CURRENT is 7"), "{error}");
}

#[test]
fn read_only_commands_create_no_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    for args in [&["get", store, "a"][..], &["scan", store], &["rm", store, "a"], &["stats", store]]
    {
        assert!(failure(args).contains("there is no store"), "{args:?}");
    }
    assert!(!path.exists());
    let empty = tempfile::tempdir().unwrap();
    let error = failure(&["rm", text(empty.path()), "a"]);
    assert!(error.contains("there is no store") && error.contains(text(empty.path())), "{error}");
    assert_eq!(empty.path().read_dir().unwrap().count(), 0, "a file was created");
    output(&["put", store, "a", "1"]);
    let error = failure(&["get", store, "a", "--keyspace", "other"]);
    assert!(error.contains("no keyspace \"other\""), "{error}");
}

/// Returns the names of the tables and filter files of a store.
fn table_files(store: &Path) -> Vec<String> {
    let entries = store.read_dir().expect("the store is there");
    let paths = entries.map(|entry| entry.expect("the directory is listed").path());
    let names = paths.filter_map(|path| Some(text(&path).rsplit_once('/')?.1.to_owned()));
    let mut names: Vec<_> =
        names.filter(|name| name.ends_with(".sst") || name.ends_with(".filter")).collect();
    names.sort();
    names
}

#[test]
fn commands_keep_the_options_of_a_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    let options = KeyspaceOptions::new()
        .prefix_extractor(PrefixExtractor::Separator(b':'))
        .range_filter_bits_per_key(12.0)
        .filter_policy(FilterPolicy::default().bits_per_key(7.0))
        .compression(Compression::None);
    let open = || {
        let options = Options::new().keyspace(options.clone()).background_rewrites(false);
        options.open(&path).unwrap()
    };
    let db = open();
    // Enough runs of level 0 that a compaction is due.
    for round in 0..8 {
        for number in 0..50 {
            db.insert(format!("user{number}:{round}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    drop(db);
    let files = table_files(&path);
    assert_eq!(files.len(), 8, "{files:?}");
    assert_eq!(output(&["get", store, "user7:3"]), "value\n");
    assert_eq!(output(&["scan", store, "--prefix", "user7:"]).lines().count(), 8);
    output(&["explain", store, "user7:3"]);
    let stats = output(&["stats", store]);
    let words = "no compression, Auto filters of 7 bits a key, prefixes by \"separator:0x3a\", \
                 range filters of 12 bits a key";
    assert!(stats.contains(words), "{stats}");
    assert!(stats.lines().any(|line| line == format!("  {options}")), "{stats}");
    let stats: Value = serde_json::from_str(&output(&["stats", store, "--json"])).unwrap();
    let want = json!({
        "memtable_bytes": 32 << 20,
        "table_bytes": 64 << 20,
        "base_level_bytes": 128 << 20,
        "blob_depth_max": null,
        "blob_garbage_ratio": 0.4,
        "blob_value_bytes": null,
        "filter_policy": {"kind": "Auto", "bits_per_key": 7.0, "memory_bytes_max": null},
        "block_bytes": 4096,
        "compression": {"kind": "None"},
        "bottommost_compression": null,
        "prefix_extractor": "separator:0x3a",
        "range_filter_bits_per_key": 12.0,
        "merge_operator": null,
        "default_ttl": null,
        "compaction_filter": null,
        "keep_history": null,
        "compaction_style": {"kind": "Leveled"},
    });
    assert_eq!(stats["keyspaces"][0]["options"], want);
    assert_eq!(table_files(&path), files);
    let manifest = path.read_dir().unwrap().map(|it| it.unwrap().path());
    let manifest = manifest.filter(|path| text(path).contains("MANIFEST-")).max().unwrap();
    let dump = output(&["dump", text(&manifest)]);
    assert!(dump.contains(&format!("1 \"default\": {options}")), "{dump}");

    output(&["put", store, "user7:8", "more"]);
    output(&["rm", store, "user7:3"]);
    let db = Options::new().create_if_missing(false).open(&path).unwrap();
    assert_eq!(db.default_keyspace().options(), options);
    assert_eq!(db.prefix("user7:").count(), 8);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "creates a file that is not of the engine")]
fn store_is_not_created_among_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let letter = dir.path().join("letter.txt");
    std::fs::write(&letter, "dear").unwrap();
    let error = failure(&["put", text(dir.path()), "a", "1"]);
    assert!(
        error.contains("\"letter.txt\"") && error.contains("use an empty directory"),
        "{error}"
    );
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "a file was created");
    std::fs::remove_file(&letter).unwrap();
    output(&["put", text(dir.path()), "a", "1"]);
    // Other files in an existing store are allowed.
    std::fs::write(&letter, "dear").unwrap();
    assert_eq!(output(&["get", text(dir.path()), "a"]), "1\n");
}
