//! Store options of the tests, and environment variables.

use std::{env, io::Write as _, str::FromStr, sync::Arc};

use sievedb::{Durability, KeyspaceOptions, Options, PrefixExtractor, clock::ManualClock, fs::Fs};

use crate::filtered::RemoveGone;

/// Directory of every store under test.
pub const STORE_DIR: &str = "data/db";

/// Returns options with which a few hundred writes rotate logs, flush and compact many times, on
/// one thread and reproducibly.
pub fn small_options(fs: Arc<dyn Fs>) -> Options {
    Options::new()
        .fs(fs)
        .clock(Arc::new(ManualClock::new()))
        .worker_threads(0)
        .durability(Durability::OsBuffer)
        .block_cache_bytes(64 << 10)
        .log_segment_bytes(4 << 10)
        .log_bytes_max(16 << 10)
        .open_files_max(4)
        .compaction_filter(Arc::new(RemoveGone))
        .keyspace(small_keyspace().prefix_extractor(PrefixExtractor::FixedLength(4)))
}

/// Returns the same with all kinds of filters, and a filter limit between nothing and more than all
/// need, chosen by `seed`.
pub fn bounded_options(fs: Arc<dyn Fs>, seed: u64) -> Options {
    let share = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    let keyspace = small_keyspace()
        .prefix_extractor(PrefixExtractor::FixedLength(4))
        .range_filter_bits_per_key(8.0);
    small_options(fs).keyspace(keyspace).filter_bytes_max(share * 64)
}

/// Returns the keyspace options of [`small_options`].
pub fn small_keyspace() -> KeyspaceOptions {
    KeyspaceOptions::new()
        .memtable_bytes(4 << 10)
        .table_bytes(4 << 10)
        .base_level_bytes(4 << 10)
        .block_bytes(1 << 10)
}

/// Returns the value of the environment variable `name`, or `default`.
///
/// # Panics
///
/// If the value is not a `T`.
#[must_use]
pub fn from_env<T: FromStr>(name: &str, default: T) -> T {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not understood")),
        Err(_) => default,
    }
}

/// Returns the seed of a random test, `SIEVE_SEED` or `default`, and prints it to reproduce a
/// failure.
#[must_use]
pub fn seed(test: &str, default: u64) -> u64 {
    let seed = from_env("SIEVE_SEED", default);
    report(&format!("{test}: SIEVE_SEED={seed}"));
    seed
}

/// Prints a line, even if the test passes.
pub fn report(line: &str) {
    // The test harness captures the output of the print macros. It prints the names and results of
    // other tests meanwhile: one write with both line ends keeps them out of this line.
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}
