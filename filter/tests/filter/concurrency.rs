//! Concurrent insertions into one filter lose nothing.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use sievedb_filter::standalone::{AtomicBloomFilter, BloomFilter, StripedBloomFilter};
use sievedb_filter::{AtomicBlockedBloom, LINE_BYTES};

use crate::random::{Random, seed};

/// Two writers collide in the same lines. Lines stay half empty, so that a lost bit is not masked
/// by another key's. Writers wait for each other by spinning: woken threads start too far apart.
#[test]
fn no_bit_is_lost() {
    const WRITERS: usize = 2;
    const LINES: usize = 64;
    const ROUNDS: usize = 500;
    let seed = seed();
    let filters: Vec<_> =
        (0..ROUNDS).map(|_| AtomicBlockedBloom::with_bytes(LINES * LINE_BYTES, 4)).collect();
    let keys = |writer: usize, round: usize| {
        let mut random = Random(seed ^ (round as u64) << 32 ^ (writer as u64) << 48);
        let mut hashes = random.many(40 * LINES);
        hashes.sort_unstable(); // In the order of their lines.
        hashes
    };
    let arrivals = AtomicUsize::new(0);
    let meet = |round: usize| {
        arrivals.fetch_add(1, Ordering::AcqRel);
        for spins in 1_u32.. {
            if arrivals.load(Ordering::Acquire) >= (round + 1) * WRITERS {
                return;
            }
            // The other writer may not be scheduled.
            if spins.is_multiple_of(4096) {
                thread::yield_now();
            } else {
                spin_loop();
            }
        }
    };
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (filters, meet) = (&filters, &meet);
            scope.spawn(move || {
                for (round, filter) in filters.iter().enumerate() {
                    let keys = keys(writer, round);
                    meet(round);
                    keys.iter().for_each(|&hash| filter.insert_hash(hash));
                }
            });
        }
    });
    for (round, filter) in filters.iter().enumerate() {
        for hash in (0..WRITERS).flat_map(|writer| keys(writer, round)) {
            assert!(filter.may_contain_hash(hash), "round {round}");
        }
    }
}

/// A reader finds what a writer has published.
#[test]
fn a_published_key_is_found() {
    const KEYS: usize = 20_000;
    let hashes = Random(seed()).many(KEYS);
    let filter = AtomicBlockedBloom::with_bytes(32 << 10, 6);
    let (published, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for (i, &hash) in hashes.iter().enumerate() {
                filter.insert_hash(hash);
                published.store(i + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let count = published.load(Ordering::Acquire);
            for &hash in &hashes[count.saturating_sub(8)..count] {
                assert!(filter.may_contain_hash(hash), "of {count} keys");
            }
        }
    });
    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
}

/// 8 threads insert into one filter. Each key is found afterwards, and the bits equal those of one
/// writer.
#[test]
fn eight_threads_lose_nothing() {
    const THREADS: usize = 8;
    const KEYS: usize = 40_000;
    let seed = seed();
    // A small filter, so that threads collide in its lines. Half of the keys of adjacent threads
    // overlap.
    let atomic = AtomicBloomFilter::with_shape(1 << 18, 4);
    let striped = StripedBloomFilter::with_shape(THREADS / 2, 1 << 18, 4);
    let hashes = Random(seed).many((THREADS + 1) * KEYS / 2);
    let of_thread = |thread: usize| &hashes[thread * KEYS / 2..][..KEYS];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (atomic, striped) = (&atomic, &striped);
            scope.spawn(move || {
                for &hash in of_thread(thread) {
                    atomic.insert_hash(hash);
                    striped.insert_hash(hash);
                    assert!(atomic.may_contain_hash(hash) && striped.may_contain_hash(hash));
                }
            });
        }
    });
    let mut want = BloomFilter::with_shape(1 << 18, 4);
    hashes.iter().for_each(|&hash| {
        want.insert_hash(hash);
    });
    assert!(atomic.to_bloom() == want && striped.to_bloom() == want);
}
