//! What is left of a damaged store is saved: `scan --skip-damaged`, `import`, `repair`, `drop`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};

use sievedb::{Compression, Db, KeyspaceOptions, Options};

use super::{failure, output, sieve, sieve_reading, text, too_large_value};

const KEYS: usize = 2_000;

/// A store with a keyspace of one table, and that table.
fn store(path: &Path) -> PathBuf {
    store_of_runs(path, 1).pop().unwrap()
}

/// A store with a keyspace of so many tables, each with all keys, and these tables from the oldest
/// on.
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

#[expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]
fn damage(table: &Path, places: impl Fn(usize) -> Vec<usize>) {
    let mut bytes = std::fs::read(table).unwrap();
    for at in places(bytes.len()) {
        bytes[at] ^= 1;
    }
    std::fs::write(table, bytes).unwrap();
}

#[test]
fn n15_all_but_damaged_blocks_is_copied_and_the_loss_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    damage(&store(&old), |end| vec![end / 3, end / 3 * 2]);
    let report = sieve(&["verify", text(&old)]);
    let report = String::from_utf8_lossy(&report.stdout);
    let named = report.lines().filter(|line| line.contains("; keyspace \"users\", keys "));
    assert_eq!(named.count(), 2, "{report}");

    let scan = ["scan", text(&old), "--keyspace", "users"];
    assert_eq!(sieve(&scan).status.code(), Some(2), "it ends at the damage");
    let end = sieve(&[&scan[..], &["--skip-damaged"]].concat());
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    let told = String::from_utf8(end.stderr).unwrap();
    let named = told.lines().filter(|line| line.contains("; keyspace \"users\", keys "));
    assert_eq!(named.count(), 2, "{told}");
    assert!(told.contains("skipped: 2 damaged blocks of 1.8 KiB"), "{told}");
    let part = sieve(&[&scan[..], &["--skip-damaged", "--to", "0010"]].concat());
    assert!(part.status.success() && part.stderr.is_empty(), "{part:?}");
    let scanned = String::from_utf8(end.stdout).unwrap();
    let import = ["import", text(&new), "--keyspace", "users", "--create-keyspace"];
    assert!(sieve_reading(&import, scanned.as_bytes()).status.success());
    assert_eq!(output(&["scan", text(&new), "--keyspace", "users"]), scanned);
    let lost = KEYS - scanned.lines().count();
    assert!((10..40).contains(&lost), "two blocks: {lost}");

    let salvaged = folder.path().join("salvaged");
    let report = sieve(&["repair", text(&old), text(&salvaged)]);
    assert_eq!(report.status.code(), Some(1));
    let told = String::from_utf8_lossy(&report.stdout);
    assert_eq!(told.lines().filter(|line| line.starts_with("lost: ")).count(), 2, "{told}");
    assert_eq!(output(&["scan", text(&salvaged), "--keyspace", "users"]), scanned);
    output(&["verify", text(&salvaged)]);

    output(&["drop", text(&old), "users"]);
    output(&["compact", text(&old)]);
    output(&["verify", text(&old)]);
}

#[test]
fn a_store_that_cannot_be_opened_is_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let table = store(&old);
    output(&["put", text(&old), "a", "1"]);
    damage(&table, |end| vec![end - 1]);
    assert!(failure(&["get", text(&old), "a"]).contains(text(&table)));
    assert!(failure(&["repair", text(&old), text(folder.path())]).contains("must not contain"));
    let report = sieve(&["repair", text(&old), text(&new)]);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    let told = String::from_utf8_lossy(&report.stdout);
    assert!(told.contains("1 table scanned block by block"), "{told}");
    assert_eq!(output(&["get", text(&new), "a"]), "1\n");
    assert_eq!(output(&["keyspaces", text(&new)]), "default\nusers\n");
    assert_eq!(Db::open(&new).unwrap().open_keyspace("users").unwrap().iter().count(), KEYS);
}

#[test]
fn a_limit_is_of_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let tables = store_of_runs(&store, 2);
    damage(&tables[1], |_| vec![3_000]);
    let scan = ["scan", text(&store), "--keyspace", "users", "--skip-damaged", "--limit", "100"];
    let end = sieve(&scan);
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(String::from_utf8_lossy(&end.stderr).contains("left out"), "{end:?}");
    let printed = String::from_utf8(end.stdout).unwrap();
    assert_eq!(printed.lines().count(), 100);
    let last: usize = printed.lines().last().unwrap()[..4].parse().unwrap();
    assert!((101..130).contains(&last), "the block was among them: {last}");
}

/// Enough runs that a compaction is due, which would meet the damage and make the store read-only.
#[test]
fn a_damaged_keyspace_is_dropped_before_it_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for table in store_of_runs(&store, 8) {
        damage(&table, |end| vec![end / 20]);
    }
    output(&["drop", text(&store), "users"]);
    assert_eq!(output(&["keyspaces", text(&store)]), "default\n");
    output(&["verify", text(&store)]);
}

#[test]
fn an_entry_that_is_too_large_for_the_budget_is_imported_and_salvaged() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let value = String::from_utf8(too_large_value()).unwrap();
    let input = format!("a\t1\nb\t{value}\nc\t2\n");
    let end = sieve_reading(&["import", text(&old)], input.as_bytes());
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    assert!(output(&["repair", text(&old), text(&new)]).starts_with("nothing is lost: "));
    assert!(output(&["scan", text(&new)]) == input);
}

/// 0: nothing is lost; 1: something is; 2: there is no new store.
#[test]
fn n15_repair_exits_with_0_1_or_2() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let table = store(&old);
    let repair = |to: &str| sieve(&["repair", text(&old), text(&folder.path().join(to))]);
    #[expect(clippy::disallowed_methods, reason = "damages a file behind the engine's back")]
    std::fs::remove_file(old.join("CURRENT")).unwrap();
    let end = repair("new");
    let told = String::from_utf8_lossy(&end.stdout);
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    assert!(told.starts_with("rebuilt: ") && told.contains("nothing is lost"), "{told}");
    assert_eq!(Db::open(&new).unwrap().open_keyspace("users").unwrap().iter().count(), KEYS);

    damage(&table, |end| vec![end / 3]);
    let end = repair("part");
    assert_eq!(end.status.code(), Some(1), "{end:?}");
    assert!(String::from_utf8_lossy(&end.stdout).starts_with("lost: "), "{end:?}");

    for arguments in [
        ["repair", text(&old), text(&new)],
        ["repair", text(&folder.path().join("none")), text(&folder.path().join("other"))],
        ["repair", "--no-such-option", text(&old)],
    ] {
        assert_eq!(sieve(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
