//! Threads that fill one filter at once lose nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use sievedb_filter::AtomicBlockedBloom;

use crate::random::{Random, seed};

/// Four writers crowd into few lines, so that most words are fought over. A reader asks for what
/// each writer has published, while they write.
#[test]
fn nothing_is_lost() {
    const WRITERS: usize = 4;
    const KEYS: usize = 3_000;
    let seed = seed();
    for round in 0..20_u64 {
        let filter = AtomicBlockedBloom::with_bytes(16 * 64, 4);
        let keys: Vec<Vec<u64>> = (0..WRITERS as u64)
            .map(|writer| Random(seed ^ round << 32 ^ writer << 48).many(KEYS))
            .collect();
        let published: [AtomicUsize; WRITERS] = Default::default();
        std::thread::scope(|scope| {
            for (keys, published) in keys.iter().zip(&published) {
                let filter = &filter;
                scope.spawn(move || {
                    for (i, &hash) in keys.iter().enumerate() {
                        filter.insert_hash(hash);
                        published.store(i + 1, Ordering::Release);
                    }
                });
            }
            loop {
                let counts = published.each_ref().map(|count| count.load(Ordering::Acquire));
                for (keys, &count) in keys.iter().zip(&counts) {
                    let recent = &keys[count.saturating_sub(64)..count];
                    assert!(recent.iter().all(|&hash| filter.may_contain_hash(hash)));
                }
                if counts == [KEYS; WRITERS] {
                    break;
                }
                std::thread::yield_now();
            }
        });
        let lost = keys.iter().flatten().filter(|&&hash| !filter.may_contain_hash(hash)).count();
        assert_eq!(lost, 0, "round {round}");
    }
}
