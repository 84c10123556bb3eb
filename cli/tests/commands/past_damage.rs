//! Recovery of data from a damaged store: `scan --skip-damaged`, `import`, `repair`, `drop`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    ops::Bound,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sievedb::{Compression, Db, KeyspaceOptions, Options};

use super::{failure, output, sieve, sieve_reading, text, too_large_value};

const KEYS: usize = 2_000;

/// Creates a store with a keyspace of one table. Returns the path of the table.
fn store(path: &Path) -> PathBuf {
    store_of_runs(path, 1).pop().unwrap()
}

/// Creates a store with a keyspace of `runs` tables that all have all keys. Returns the paths of
/// the tables, oldest first.
fn store_of_runs(path: &Path, runs: usize) -> Vec<PathBuf> {
    let options = KeyspaceOptions::new().block_bytes(1 << 10).compression(Compression::None);
    let db = Options::new().worker_threads(0).background_rewrites(false).open(path).unwrap();
    let users = db.keyspace_with("users", &options).unwrap();
    for _ in 0..runs {
        for key in 0..KEYS {
            users.insert(format!("{key:04}"), [b'v'; 100]).unwrap();
        }
        users.flush().unwrap();
    }
    drop((users, db));
    let tables = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    let mut tables: Vec<_> = tables.filter(is_table).collect();
    tables.sort();
    assert_eq!(tables.len(), runs, "{tables:?}");
    tables
}

#[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
fn damage(table: &Path, places: impl Fn(usize) -> Vec<usize>) {
    let mut bytes = std::fs::read(table).unwrap();
    for at in places(bytes.len()) {
        bytes[at] ^= 1;
    }
    std::fs::write(table, bytes).unwrap();
}

#[test]
fn n15_undamaged_blocks_are_copied_and_losses_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    damage(&store(&old), |end| vec![end / 3, end / 3 * 2]);
    let report = sieve(&["verify", text(&old)]);
    let report = String::from_utf8_lossy(&report.stdout);
    let named = report.lines().filter(|line| line.contains("; keyspace \"users\", keys "));
    assert_eq!(named.count(), 2, "{report}");

    let scan = ["scan", text(&old), "--keyspace", "users"];
    assert_eq!(sieve(&scan).status.code(), Some(2), "the scan stops at the damage");
    let end = sieve(&[&scan[..], &["--skip-damaged"]].concat());
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    let message = String::from_utf8(end.stderr).unwrap();
    let named = message.lines().filter(|line| line.contains("; keyspace \"users\", keys "));
    assert_eq!(named.count(), 2, "{message}");
    assert!(message.contains("skipped: 2 damaged blocks, 1.8 KiB in total"), "{message}");
    for part in [&["--to", "0010"][..], &["--prefix", "000"], &["--limit", "0"]] {
        let part = sieve(&[&scan[..], &["--skip-damaged"], part].concat());
        assert!(part.status.success() && part.stderr.is_empty(), "{part:?}");
    }
    let scanned = String::from_utf8(end.stdout).unwrap();
    let import = ["import", text(&new), "--keyspace", "users", "--create-keyspace"];
    assert!(sieve_reading(&import, scanned.as_bytes()).status.success());
    assert_eq!(output(&["scan", text(&new), "--keyspace", "users"]), scanned);
    let lost = KEYS - scanned.lines().count();
    assert!((10..40).contains(&lost), "two blocks: {lost}");

    let salvaged = dir.path().join("salvaged");
    let report = sieve(&["repair", text(&old), "--into", text(&salvaged)]);
    assert_eq!(report.status.code(), Some(1));
    let message = String::from_utf8_lossy(&report.stdout);
    assert_eq!(message.lines().filter(|line| line.starts_with("lost: ")).count(), 2, "{message}");
    assert_eq!(output(&["scan", text(&salvaged), "--keyspace", "users"]), scanned);
    output(&["verify", text(&salvaged)]);

    output(&["drop", text(&old), "users"]);
    output(&["compact", text(&old)]);
    output(&["verify", text(&old)]);
}

#[test]
fn store_that_cannot_be_opened_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let table = store(&old);
    output(&["put", text(&old), "a", "1"]);
    damage(&table, |end| vec![end - 1]);
    assert!(failure(&["get", text(&old), "a"]).contains(text(&table)));
    let errors = failure(&["repair", text(&old), "--into", text(dir.path())]);
    assert!(errors.contains("contains \"old\""), "{errors}");
    let report = sieve(&["repair", text(&old), "--into", text(&new)]);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    let message = String::from_utf8_lossy(&report.stdout);
    assert!(message.contains("1 table scanned block by block"), "{message}");
    assert_eq!(output(&["get", text(&new), "a"]), "1\n");
    assert_eq!(output(&["keyspaces", text(&new)]), "default\nusers\n");
    assert_eq!(Db::open(&new).unwrap().open_keyspace("users").unwrap().iter().count(), KEYS);
}

#[test]
fn limit_counts_printed_entries() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let tables = store_of_runs(&store, 2);
    damage(&tables[1], |_| vec![3_000]);
    let scan = ["scan", text(&store), "--keyspace", "users", "--skip-damaged", "--limit", "100"];
    let end = sieve(&scan);
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(
        String::from_utf8_lossy(&end.stderr).contains("whose newest value may be lost"),
        "{end:?}"
    );
    let printed = String::from_utf8(end.stdout).unwrap();
    assert_eq!(printed.lines().count(), 100);
    let last: usize = printed.lines().last().unwrap()[..4].parse().unwrap();
    assert!((101..130).contains(&last), "keys of the damaged block are not counted: {last}");
}

/// The keys after the last one of a block are not in it.
#[test]
fn scan_that_ends_beside_a_damaged_block_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    damage(&store(&path), |end| vec![end / 3]);
    let problems = Db::open(&path).unwrap().verify().unwrap().problems;
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    let (start, _) = problem.keys.as_ref().unwrap();
    let (Bound::Included(key) | Bound::Excluded(key)) = start else { panic!("{problem:?}") };
    let key = str::from_utf8(key).unwrap();
    let scan = ["scan", text(&path), "--keyspace", "users", "--skip-damaged", "--to", key];
    let end = sieve(&scan);
    assert!(end.status.success() && end.stderr.is_empty(), "{end:?}");
}

/// The exit code still reports what was skipped.
#[test]
fn skipped_blocks_are_reported_without_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    damage(&store(&path), |end| vec![end / 3]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
    sieve.args(["scan", text(&path), "--keyspace", "users", "--skip-damaged"]);
    let end = sieve.stdout(Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(end.code(), Some(1));
}

/// Other values are printed, and keys without values are not affected.
#[test]
fn damaged_value_in_a_blob_file_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keyspace = KeyspaceOptions::new().blob_value_bytes(100).compression(Compression::None);
    let db = Options::new().worker_threads(0).keyspace(keyspace).open(&path).unwrap();
    for letter in ["a", "b", "c"] {
        db.insert(letter, letter.repeat(900)).unwrap();
    }
    db.insert("d", "short").unwrap();
    db.flush().unwrap();
    drop(db);
    let files = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut blobs = files.filter(|path| path.extension().is_some_and(|name| name == "blob"));
    let blob = blobs.next().unwrap();
    assert_eq!(blobs.next(), None);
    #[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
    let bytes = std::fs::read(&blob).unwrap();
    let at = bytes.windows(900).position(|window| window == [b'b'; 900]).unwrap();
    damage(&blob, |_| vec![at + 450]);

    let store = text(&path);
    assert_eq!(sieve(&["scan", store]).status.code(), Some(2));
    assert!(output(&["explain", store, "b"]).contains("a value of 900 bytes"));
    assert_eq!(output(&["scan", store, "--keys-only"]), "a\nb\nc\nd\n");
    assert_eq!(output(&["scan", store, "--keys-only", "--reverse"]), "d\nc\nb\na\n");
    for (flags, want) in [(&[][..], ["a", "c", "d"]), (&["--reverse"], ["d", "c", "a"])] {
        let end = sieve(&[&["scan", store, "--skip-damaged"], flags].concat());
        assert_eq!(end.status.code(), Some(1), "{end:?}");
        let printed = String::from_utf8(end.stdout).unwrap();
        assert!(printed.lines().map(|line| &line[..1]).eq(want), "{printed}");
        let errors = String::from_utf8(end.stderr).unwrap();
        assert!(errors.contains("skipped 1 key whose newest value may be lost"), "{errors}");
    }
}

/// With eight runs a compaction is due, which would fail at the damage.
#[test]
fn drop_does_not_compact_a_damaged_keyspace() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    for table in store_of_runs(&store, 8) {
        damage(&table, |end| vec![end / 20]);
    }
    output(&["drop", text(&store), "users"]);
    assert_eq!(output(&["keyspaces", text(&store)]), "default\n");
    output(&["verify", text(&store)]);
}

#[test]
fn import_and_repair_raise_the_budget_for_a_large_entry() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let value = String::from_utf8(too_large_value()).unwrap();
    let input = format!("a\t1\nb\t{value}\nc\t2\n");
    let end = sieve_reading(&["import", text(&old)], input.as_bytes());
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    assert!(output(&["repair", text(&old), "--into", text(&new)]).starts_with("nothing is lost: "));
    assert!(output(&["scan", text(&new)]) == input);
}

/// 0: no loss; 1: data lost; 2: no new store.
#[test]
fn n15_repair_exits_with_0_1_or_2() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let table = store(&old);
    let repair = |to: &str| sieve(&["repair", text(&old), "--into", text(&dir.path().join(to))]);
    #[expect(clippy::disallowed_methods, reason = "bypasses the engine to damage a file")]
    std::fs::remove_file(old.join("CURRENT")).unwrap();
    let end = repair("new");
    let message = String::from_utf8_lossy(&end.stdout);
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    assert!(message.starts_with("rebuilt: ") && message.contains("nothing is lost"), "{message}");
    assert_eq!(Db::open(&new).unwrap().open_keyspace("users").unwrap().iter().count(), KEYS);

    damage(&table, |end| vec![end / 3]);
    let end = repair("part");
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(String::from_utf8_lossy(&end.stdout).starts_with("lost: "), "{end:?}");

    for arguments in [
        &["repair", text(&old), "--into", text(&new)][..],
        &["repair", text(&dir.path().join("none")), "--into", text(&dir.path().join("other"))],
        &["repair", "--no-such-option", text(&old)],
    ] {
        assert_eq!(sieve(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn repair_reports_losses_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let table = store(&old);
    damage(&table, |end| vec![end / 3]);
    let end = sieve(&["repair", text(&old), "--into", text(&new), "--json"]);
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    let report: serde_json::Value = serde_json::from_slice(&end.stdout).unwrap();
    let [lost] = &report["lost"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(lost["file"], text(&table));
    assert_eq!(lost["keyspace"], "users");
    assert!(lost["offset"].as_u64().unwrap() > 0 && lost["block_bytes"].as_u64().unwrap() > 0);
    let key = |end: &str| lost["keys"][end]["key"].as_str().unwrap().to_owned();
    assert!(key("start") < key("end"), "{report}");
    assert_eq!(report["tables"], 1);
    assert_eq!(report["is_rebuilt"], false);
    // The keys of the block, and no others, are absent.
    let db = Db::open(&new).unwrap();
    let users = db.open_keyspace("users").unwrap();
    let left: Vec<_> = users.iter().map(|entry| entry.unwrap().0).collect();
    let (start, end) = (key("start").into_bytes(), key("end").into_bytes());
    let is_lost = |key: &[u8]| (&start[..]..=&end[..]).contains(&key);
    assert!(left.len() < KEYS);
    assert!(left.iter().all(|key| *key == start || *key == end || !is_lost(key)));
}

#[test]
fn upgrade_lists_formats_and_unreadable_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let table = store(&path);
    let open = Db::open(&path).unwrap();
    for arguments in [&["upgrade", text(&path)][..], &["upgrade", text(&path), "--dry-run"]] {
        let report = output(arguments);
        let [files, end] = &report.lines().collect::<Vec<_>>()[..] else { panic!("{report}") };
        assert!(files.contains(" files of format version 1, written by 0.1.0"), "{report}");
        assert!(end.starts_with("every file has the current format: nothing"), "{report}");
    }
    drop(open);
    damage(&table, |_| vec![3]);
    let end = sieve(&["upgrade", text(&path)]);
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(String::from_utf8_lossy(&end.stdout).contains("unreadable: "), "{end:?}");
    let errors = String::from_utf8_lossy(&end.stderr);
    assert!(errors.contains("cannot read 1 file, listed above"), "{errors}");
    assert!(failure(&["upgrade", text(dir.path())]).contains("no store"));
}

#[test]
fn damage_is_not_skipped_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    db.insert("key", "value").unwrap();
    let refused = sieve(&["scan", text(dir.path()), "--skip-damaged"]);
    // Before the first entry: the report at the end is not possible.
    assert_eq!((refused.status.code(), refused.stdout), (Some(2), Vec::new()));
}
