//! `sieve cluster`, which runs another program.

#![expect(clippy::disallowed_methods, reason = "the test writes a program")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

fn cluster(path: &Path) -> std::process::Output {
    let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
    sieve.args(["cluster", "start", "--nodes", "3"]).env("PATH", path);
    sieve.output().expect("the binary was built")
}

#[test]
fn the_program_in_path_gets_the_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let missing = cluster(dir.path());
    assert_eq!(missing.status.code(), Some(2));
    let message = String::from_utf8(missing.stderr).unwrap();
    assert!(message.contains("sieve-cluster is not installed"), "{message}");
    assert!(message.contains("cargo install --path raft/cluster"), "{message}");

    let program = dir.path().join("sieve-cluster");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let found = cluster(dir.path());
    assert_eq!((found.status.code(), &*found.stdout), (Some(7), &b"start --nodes 3\n"[..]));
}

#[cfg(feature = "encryption")]
#[test]
fn keys_are_refused_because_the_nodes_do_not_encrypt() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    fs::write(&keys, format!("1 {}", "0f".repeat(32))).unwrap();
    for is_option in [true, false] {
        let mut sieve = Command::new(env!("CARGO_BIN_EXE_sieve"));
        if is_option {
            sieve.arg("--key-file").arg(&keys);
        } else {
            sieve.env("SIEVE_KEY_FILE", &keys);
        }
        sieve.args(["cluster", "start"]).env("PATH", dir.path());
        let refused = sieve.output().expect("the binary was built");
        let message = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains("does not encrypt") && message.contains("unset"), "{message}");
    }
}
