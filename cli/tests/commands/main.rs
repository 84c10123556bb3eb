//! Tests of the binary `sieve`: each command runs as a process.

mod backup;
mod benches;
mod changes;
mod checkpoint;
mod cluster;
mod damage;
#[cfg(feature = "encryption")]
mod encryption;
mod entries;
mod export;
mod insight;
mod keyspaces;
mod limits;
mod messages;
mod migrate;
mod mistakes;
mod past_damage;
mod read_only;
mod verify;

use sievedb::{Error, Options};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs `sieve` with `args`.
fn sieve(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sieve")).args(args).output().expect("the binary was built")
}

/// Runs `sieve` with `args`, and with `input` on its standard input.
fn sieve_reading(args: &[&str], input: &[u8]) -> Output {
    let piped = || Stdio::piped();
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
    let sieve = sieve.args(args).stdin(piped()).stdout(piped()).stderr(piped());
    let mut sieve = sieve.spawn().expect("the binary was built");
    let mut stdin = sieve.stdin.take().expect("it is piped");
    // The process may exit before it has read all input.
    let _ = stdin.write_all(input);
    drop(stdin);
    sieve.wait_with_output().expect("it was started")
}

/// Runs `sieve` with `args`, and closes its standard output after the first `lines` lines. Returns
/// the exit code and standard error.
fn sieve_into_closed_pipe(args: &[&str], lines: usize) -> (Option<i32>, String) {
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
    let sieve = sieve.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sieve = sieve.spawn().expect("the binary was built");
    let out = BufReader::new(sieve.stdout.take().expect("it is piped"));
    assert_eq!(out.lines().take(lines).count(), lines, "{args:?}");
    let end = sieve.wait_with_output().expect("it was started");
    (end.status.code(), String::from_utf8_lossy(&end.stderr).into_owned())
}

/// Flushes the memtables of the store at `path`.
fn flush(path: &Path) {
    let db = Options::new().worker_threads(0).open(path).expect("a good store");
    db.flush().expect("there is room");
}

/// Returns a value too large for the default budget, which depends on the machine.
fn too_large_value() -> Vec<u8> {
    let dir = tempfile::tempdir().expect("there is room");
    let db = Options::new().open(dir.path()).expect("a new store");
    let memtables = db.stats().memory.memtable_bytes_max;
    let value = vec![b'v'; (memtables - memtables / 4) as usize];
    let refused = db.insert("a", &value);
    assert!(matches!(refused, Err(Error::WriteTooLarge { .. })), "{refused:?}");
    value
}

/// Runs `sieve`, which must succeed. Returns its output.
fn output(args: &[&str]) -> String {
    let output = sieve(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("the output is text")
}

/// Runs `sieve`, which must exit with 2 and print nothing. Returns its standard error.
fn failure(args: &[&str]) -> String {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).expect("the errors are text")
}

/// Runs `sieve`, which must exit with 1 and print nothing.
fn exits_with_1_silently(args: &[&str]) {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()), "{args:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
