//! Real processes on the real file system: killed at any moment, forked, or with another current
//! folder.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod forked;
mod killed;
mod mapped;
mod moved;
#[cfg(target_os = "linux")]
mod resident;
#[cfg(target_os = "linux")]
mod sandboxed;

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

#[cfg(target_os = "linux")]
const MIB: u64 = 1 << 20;

/// Returns resident memory of this process in bytes: `VmRSS:` now, `VmHWM:` at most so far.
#[cfg(target_os = "linux")]
fn resident_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
