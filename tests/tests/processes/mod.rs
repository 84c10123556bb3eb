//! Real processes on the real file system: killed, forked, or with another current directory.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod followed;
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

/// Environment variable with the directory that a test in another process uses.
const DIR_VARIABLE: &str = "SIEVE_PROCESSES_DIR";

/// Returns a command that runs the test `name` in another process.
fn other_process(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[cfg(target_os = "linux")]
const MIB: u64 = 1 << 20;

/// Returns the resident memory of this process in bytes: `VmRSS:` is the current value, `VmHWM:`
/// the peak.
#[cfg(target_os = "linux")]
fn resident_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
