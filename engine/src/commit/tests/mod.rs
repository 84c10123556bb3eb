//! Guarantees of the commit pipeline, under schedules that shuttle chooses.
//!
//! | module          | tests                                                              |
//! |-----------------|--------------------------------------------------------------------|
//! | [`durable_waits`] | asynchronous commits and the durable watermark                     |
//! | [`publish`]     | the order in which writes become visible                           |
//! | [`shared_log`]  | acknowledged writes are in the log, and on the disk                |
//! | [`snapshots`]   | the list of snapshots against what a compaction drops              |
//! | [`store`]       | a whole store: conditional writes, snapshots, workers, power cuts  |
//! | [`views`]       | a view is freed when its last reader is done, and not before       |
//! | [`log_host`]    | the store around the log, reduced to what the log needs            |
//! | [`stepped_fs`]  | a disk in memory whose calls take time                             |
//!
//! Run them with `cargo test -p sievedb --features shuttle --lib commit::tests`. A failure prints
//! the schedule and the seed.

mod durable_waits;
mod log_host;
mod publish;
mod shared_log;
mod snapshots;
mod stepped_fs;
mod store;
mod views;

use std::env;

use shuttle::{
    Config, Runner,
    rand::{RngCore, thread_rng},
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

/// The seed if the environment names none.
const SEED: u64 = 0;

/// Changes of priority within a schedule, and one: a bug that needs this many steps in a certain
/// order is found with a probability that is known (Burckhardt et al., "A Randomized Scheduler with
/// Probabilistic Guarantees of Finding Bugs", ASPLOS 2010).
const PCT_DEPTH: usize = 4;

/// The write path with its encoders, and a panic's message.
const STACK_BYTES: usize = 256 << 10;

/// Runs `test` under `schedules` random schedules and as many with random priorities.
///
/// `SIEVE_SEED` chooses others, and repeats those of a failure.
fn explore(schedules: usize, test: impl Fn() + Clone + Send + Sync + 'static) {
    let seed = env::var("SIEVE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or(SEED);
    eprintln!("SIEVE_SEED={seed}, random schedules");
    run(RandomScheduler::new_from_seed(seed, schedules), test.clone());
    eprintln!("SIEVE_SEED={seed}, random priorities");
    run(PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules), test);
}

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    // `crate::sync` states that the atomics are modelled as sequentially consistent.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(test);
}

/// A number below `bound` that belongs to the schedule.
fn below(bound: u64) -> u64 {
    thread_rng().next_u64() % bound
}
