//! The binary `sieve`, from the outside: each command is a process of its own.

mod benches;
mod entries;
mod insight;
mod read_only;
mod verify;

use std::{
    path::Path,
    process::{Command, Output},
};

/// Runs `sieve` with `args`.
fn sieve(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sieve")).args(args).output().expect("the binary was built")
}

/// What `sieve` prints when all goes well.
fn output(args: &[&str]) -> String {
    let output = sieve(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The errors that `sieve` prints when it fails.
fn failure(args: &[&str]) -> String {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).expect("the errors are text")
}

/// Says nothing, and ends with the code of "no".
fn says_no(args: &[&str]) {
    let output = sieve(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()), "{args:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}
