//! The concurrent filters under thread schedules that shuttle chooses.
//!
//! Run them with `cargo test -p sievedb-filter --features shuttle --lib schedules`. A failure
//! prints the schedule and the seed.

use std::{env, sync::Arc};

use shuttle::{
    Config, Runner,
    scheduler::{DfsScheduler, RandomScheduler, Scheduler},
    thread,
};

use super::{AtomicBloomFilter, StripedBloomFilter};

/// Two words, so that keys share bits and words and a lost update is likely to be seen.
const BITS: u64 = 80;

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    // Shuttle warns that it assumes sequential consistency. The atomics are read-modify-writes of
    // single words that publish nothing else: `atomic_bloom` argues why relaxed ordering suffices.
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(test)
}

/// Inserts one key per thread. Returns how many insertions reported a new key.
fn insert(threads: u64, probes: u32, key_of: fn(u64) -> u64) -> usize {
    let filter = Arc::new(AtomicBloomFilter::with_shape(BITS, probes));
    let writers = (0..threads).map(|thread| {
        let filter = Arc::clone(&filter);
        thread::spawn(move || !filter.insert_hash(key_of(thread)))
    });
    let writers: Vec<_> = writers.collect();
    let results =
        writers.into_iter().map(|thread| thread.join().expect("the thread does not panic"));
    let new_keys = results.filter(|&new| new).count();
    for thread in 0..threads {
        assert!(filter.may_contain_hash(key_of(thread)), "the key of thread {thread} is lost");
    }
    assert_eq!(filter.keys(), new_keys as u64);
    new_keys
}

/// Distinct keys with some bits in common.
fn different(thread: u64) -> u64 {
    (thread + 1) << 60
}

/// All schedules of two threads with two probes each.
#[test]
fn two_threads_lose_no_bit() {
    let schedules = run(DfsScheduler::new(None, false), || {
        insert(2, 2, different);
    });
    assert!(schedules > 100, "{schedules} schedules");
    run(DfsScheduler::new(None, false), || {
        assert!(insert(2, 2, |_| 7) >= 1, "no insertion reported a new key");
    });
}

#[test]
fn four_threads_lose_no_bit() {
    let seed = env::var("SIEVE_SEED").map_or(0, |seed| seed.parse().expect("a number"));
    eprintln!("SIEVE_SEED={seed}");
    run(RandomScheduler::new_from_seed(seed, 5_000), || {
        insert(4, 3, different);
    });
    run(RandomScheduler::new_from_seed(seed, 5_000), || {
        assert!(insert(4, 3, |_| 7) >= 1, "no insertion reported a new key");
    });
}

/// More threads than stripes, so that two threads share one.
#[test]
fn stripes_lose_no_bit() {
    run(RandomScheduler::new_from_seed(0, 5_000), || {
        let filter = Arc::new(StripedBloomFilter::with_shape(2, BITS, 3));
        let writers = (0..3).map(|thread| {
            let filter = Arc::clone(&filter);
            thread::spawn(move || filter.insert_hash(different(thread)))
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().for_each(|thread| thread.join().expect("the thread does not panic"));
        for thread in 0..3 {
            assert!(filter.may_contain_hash(different(thread)));
            assert!(filter.to_bloom().may_contain_hash(different(thread)));
        }
    });
}
