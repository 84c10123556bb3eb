//! Features that this crate does not read are refused by name.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use rustix::fs::{FlockOperation, fcntl_lock};
use sievedb_migrate::{Error, Options, RocksDb, StringAppend};

use crate::{copy, dump, fixture};

#[test]
fn other_directories_are_not_rocksdb() {
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(RocksDb::open(empty.path()), Err(Error::NotRocksDb { .. })));
    fs::write(empty.path().join("CURRENT"), "something else").unwrap();
    assert!(matches!(RocksDb::open(empty.path()), Err(Error::NotRocksDb { .. })));
    assert!(matches!(RocksDb::open("no-such-directory"), Err(Error::NotRocksDb { .. })));
}

/// Set in the process that holds the lock of a database.
const LOCK: &str = "SIEVEDB_MIGRATE_LOCK";

/// Holds the lock of a database until its standard input ends, if it runs as a process of its own.
#[test]
fn holder_of_a_lock() {
    let Some(path) = std::env::var_os(LOCK) else { return };
    let file = fs::File::create(path).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    writeln!(io::stdout(), "locked").unwrap();
    let mut text = String::new();
    io::stdin().read_line(&mut text).unwrap();
}

#[test]
fn an_open_database_is_refused() {
    let copy = copy("version2");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "refusals::holder_of_a_lock"])
        .env(LOCK, copy.path().join("LOCK"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("locked")));
    let error = RocksDb::open(copy.path()).unwrap_err();
    let process = Some(holder.id());
    assert!(matches!(&error, Error::Locked { process: id, .. } if *id == process), "{error}");
    drop(holder.stdin.take());
    // Reads the rest, so that the process does not write to a closed pipe.
    lines.for_each(drop);
    assert!(holder.wait().unwrap().success());
    RocksDb::open(copy.path()).unwrap();
}

fn refused(path: &Path) -> String {
    let error = dump(path, &Options::new()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn other_compression_is_refused_by_name() {
    assert!(refused(&fixture("zlib")).contains("compression Zlib"));
}

#[test]
fn unknown_merge_operators_are_refused_by_name() {
    let copy = copy("merges");
    let text = "[CFOptions \"default\"]\n  merge_operator=app.Sum\n";
    fs::write(copy.path().join("OPTIONS-000099"), text).unwrap();
    assert!(refused(copy.path()).contains("merge operator \"app.Sum\""));
    fs::write(copy.path().join("OPTIONS-000099"), "").unwrap();
    assert!(refused(copy.path()).contains("not named in the file OPTIONS"));
}

#[test]
fn string_append_without_a_stored_delimiter_is_refused() {
    let copy = copy("merges");
    // Older releases do not store the delimiter.
    for class in ["StringAppendOperator", "StringAppendTESTOperator"] {
        let text = format!("[CFOptions \"default\"]\n  merge_operator={class}\n");
        fs::write(copy.path().join("OPTIONS-000099"), text).unwrap();
        assert!(refused(copy.path()).contains("delimiter is not in the file OPTIONS"));
    }
    let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
    let options = Options::new().merge_operator("default", Arc::new(StringAppend::new("|")));
    assert_eq!(dump(copy.path(), &options).unwrap(), want);
}

#[test]
fn values_with_times_are_refused() {
    let copy = copy("version2");
    for option in [
        "compaction_filter_factory=TtlCompactionFilterFactory",
        "compaction_filter={id=TtlCompactionFilter;user_filter=app.Filter;}",
        // Older releases, of a database with a filter of the application.
        "compaction_filter=Delete By TTL",
        "merge_operator={id=TtlMergeOperator;}",
        "merge_operator=Merge By TTL",
    ] {
        let text = format!("[CFOptions \"default\"]\n  {option}\n");
        fs::write(copy.path().join("OPTIONS-000099"), text).unwrap();
        assert!(refused(copy.path()).contains("DBWithTTL"), "{option}");
    }
    let text = "[CFOptions \"default\"]\n  compaction_filter=app.Throttle\n";
    fs::write(copy.path().join("OPTIONS-000099"), text).unwrap();
    dump(copy.path(), &Options::new()).unwrap();
}

#[test]
fn other_tables_are_refused_by_name() {
    for (magic, name) in [
        (0x8242_2296_63bf_9564_u64, "plain table"),
        (0x4f34_18eb_7a8f_13b8, "plain table"),
        (0x9267_89d0_c5f1_7873, "cuckoo table"),
    ] {
        let copy = copy("version2");
        let path = copy.path().join("000014.sst");
        let mut bytes = fs::read(&path).unwrap();
        let magic_at = bytes.len() - 8;
        bytes[magic_at..].copy_from_slice(&magic.to_le_bytes());
        fs::write(&path, bytes).unwrap();
        assert!(refused(copy.path()).contains(name));
    }
}

/// Appends an edit to the manifest of a fixture. Returns the directory.
fn with_edit(name: &str, edit: &[u8]) -> tempfile::TempDir {
    let copy = copy(name);
    let current = fs::read_to_string(copy.path().join("CURRENT")).unwrap();
    let path = copy.path().join(current.trim_end());
    let mut manifest = fs::read(&path).unwrap();
    let body = [&[1], edit].concat();
    let checksum = crc32c::crc32c(&body).rotate_right(15).wrapping_add(0xa282_ead8);
    manifest.extend_from_slice(&checksum.to_le_bytes());
    manifest.extend_from_slice(&(edit.len() as u16).to_le_bytes());
    manifest.extend_from_slice(&body);
    fs::write(path, manifest).unwrap();
    copy
}

#[test]
fn unknown_fields_of_the_manifest_are_refused_by_number_or_skipped() {
    assert!(refused(with_edit("version2", b"\x0b").path()).contains("field 11 in the manifest"));
    // A tag with the ignorable bit: tag 8192 + 100, 2 bytes.
    let skipped = with_edit("version2", b"\xe4\x40\x02ab");
    let want = fs::read_to_string(skipped.path().join("EXPECTED")).unwrap();
    assert_eq!(dump(skipped.path(), &Options::new()).unwrap(), want);
}

#[test]
fn logs_that_the_manifest_tracks_must_be_whole() {
    let copy = copy("tracked-logs");
    let logs = fs::read_dir(copy.path()).unwrap().map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let log = logs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 1]).unwrap();
    let error = RocksDb::open(copy.path()).unwrap_err();
    assert!(error.to_string().contains("in the manifest"), "{error}");
    fs::remove_file(&log).unwrap();
    let error = RocksDb::open(copy.path()).unwrap_err();
    assert!(error.to_string().contains("the log is missing"), "{error}");
}

#[test]
fn other_comparators_are_refused_by_name() {
    let copy = with_edit("version2", b"\x01\x03app");
    assert!(refused(copy.path()).contains("comparator \"app\""));
}

#[test]
fn a_group_of_edits_without_its_end_is_dropped() {
    // Drops the only column family, as the first of two edits.
    let copy = with_edit("version2", b"\xac\x02\x01\xca\x01");
    let want = fs::read_to_string(copy.path().join("EXPECTED")).unwrap();
    assert_eq!(dump(copy.path(), &Options::new()).unwrap(), want);
    let whole = with_edit("version2", b"\xac\x02\x00\xca\x01");
    assert_eq!(dump(whole.path(), &Options::new()).unwrap(), "");
}
