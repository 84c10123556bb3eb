//! Limits of the system, and input without end.

use std::process::{Command, Output};

use super::{output, text};

/// Runs `sieve` with `args` in a shell that does `first` before.
fn sieve_after(first: &str, args: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_sieve")).args(args).output().expect("there is a shell")
}

/// The log's room for records, which synced writes ask for, would be beyond the limit: writing
/// there ends a process.
#[test]
fn a_limit_of_file_lengths_stops_no_short_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = text(&path);
    // 100 KiB, in blocks of 512 bytes.
    let stored = sieve_after("ulimit -f 200", &["put", store, "key", "value"]);
    assert_eq!(stored.status.code(), Some(0), "{stored:?}");
    assert_eq!(output(&["get", store, "key"]), "value\n");
}

#[test]
fn a_value_without_end_is_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    // In 4 GB of address space.
    let refused =
        sieve_after("ulimit -v 4000000 && exec < /dev/zero", &["put", text(&path), "key", "-"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("a value of 268435457 bytes is too long"), "{errors}");
}

#[test]
fn the_code_tells_where_nobody_reads_the_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let failed = sieve_after("exec 2> /dev/full", &["get", text(&path), "key"]);
    assert_eq!(failed.status.code(), Some(2), "{failed:?}");
}
