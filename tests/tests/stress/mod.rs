//! Threads that write and read during flushes and compactions: no wrong result.
//!
//! No lock orders the test's threads, because it would order the engine's too. Each thread owns a
//! range of keys, and each of its writes follows from its number ([`history`]). So a reader knows
//! the exact state after each number. The possible newest numbers follow from the owner's
//! acknowledged writes before the read and its started writes after it.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![expect(clippy::print_stdout, reason = "a test reports how many cases it ran")]

mod check;
mod chores;
mod history;
mod random;
mod run;

use std::{env, time::Duration};

use sievedb::{Compression, KeyspaceOptions, Options};

/// Returns the duration of the tests: `SIEVE_STRESS_SECONDS`, else long in CI and short elsewhere.
fn run_time() -> Duration {
    let seconds = env::var("SIEVE_STRESS_SECONDS").ok().map(|text| text.parse().unwrap());
    let usual = if env::var_os("CI").is_some() { 30 } else { 5 };
    Duration::from_secs(seconds.unwrap_or(usual))
}

/// Returns options with which a few thousand writes create tables on several levels.
fn small_options() -> Options {
    Options::new()
        .worker_threads(2)
        .block_cache_bytes(256 << 10)
        .log_segment_bytes(256 << 10)
        .log_bytes_max(2 << 20)
        .open_files_max(8)
        .keyspace(small_keyspace())
}

fn small_keyspace() -> KeyspaceOptions {
    KeyspaceOptions::new()
        .memtable_bytes(256 << 10)
        .table_bytes(128 << 10)
        .base_level_bytes(256 << 10)
        .block_bytes(1 << 10)
        .compression(Compression::Lz4)
}

#[test]
fn eight_threads_see_no_wrong_result() {
    run::run(run_time(), |_| {});
}

#[test]
fn eight_threads_beside_maintenance_see_no_wrong_result() {
    run::run(run_time() / 3, chores::start);
}
