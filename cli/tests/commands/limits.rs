//! System limits and endless input.

use std::process::{Command, Output};

use super::{output, text};

/// Runs `sieve` with `args` in a shell, after the command `first`.
fn sieve_after(first: &str, args: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_sieve")).args(args).output().expect("there is a shell")
}

/// The preallocation of the log exceeds the limit; writing there would end the process.
#[test]
fn file_size_limit_does_not_fail_short_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = text(&path);
    // 100 KiB, in blocks of 512 bytes.
    let stored = sieve_after("ulimit -f 200", &["put", store, "key", "value"]);
    assert_eq!(stored.status.code(), Some(0), "{stored:?}");
    assert_eq!(output(&["get", store, "key"]), "value\n");
}

#[test]
fn endless_value_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    // In 4 GB of address space.
    let refused =
        sieve_after("ulimit -v 4000000 && exec < /dev/zero", &["put", text(&path), "key", "-"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("a value of 268435457 bytes is too long"), "{errors}");
}

#[test]
fn exit_code_is_2_if_stderr_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let failed = sieve_after("exec 2> /dev/full", &["get", text(&path), "key"]);
    assert_eq!(failed.status.code(), Some(2), "{failed:?}");
}
