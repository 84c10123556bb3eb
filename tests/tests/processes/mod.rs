//! Real processes on the real file system: killed at any moment, forked, or with another current folder.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod forked;
mod killed;
mod mapped;
mod moved;

use std::{
    env,
    process::{Command, Stdio},
};

/// Tells a test that is run in another process that it is, and which folder to work in.
const FOLDER_VARIABLE: &str = "SIEVE_PROCESSES_FOLDER";

/// How to run the test `name` in another process.
fn other_process(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}
