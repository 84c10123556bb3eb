//! The budget changes while threads read and write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::{
    thread,
    time::{Duration, Instant},
};

use sievedb::FilterPolicy;
use sievedb_doubles::MemoryFs;
use sievedb_tests::{rng::Rng, settings::seed};

use super::{KEYS, STORE_DIR, fill, filter_bytes, key, options};

#[test]
fn readers_find_every_key_while_the_budget_changes() {
    let options = options(Arc::new(MemoryFs::new()), FilterPolicy::default());
    let db = options.worker_threads(2).open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS);
    let whole = filter_bytes(&db);
    let mut rng = Rng::new(seed("filter budget", 1));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                for number in (reader..KEYS).step_by(3).cycle() {
                    assert!(db.contains_key(key(number)).unwrap(), "{number} is lost");
                    assert!(!db.contains_key(key(number + KEYS * 10)).unwrap());
                    if is_over.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        for round in 0..60_u64 {
            let bytes_max = rng.number() % (whole * 5 / 4);
            db.set_filter_bytes_max(bytes_max).unwrap();
            let found = filter_bytes(&db);
            assert!(found <= bytes_max, "{found} bytes, {bytes_max} are allowed");
            if round % 10 == 9 {
                fill(&db, KEYS + round * 1_000..KEYS + (round + 1) * 1_000);
            }
        }
        is_over.store(true, Relaxed);
    });
    db.set_filter_bytes_max(u64::MAX).unwrap();
    db.compact().unwrap();
}

/// Flushes continue while a lookup holds filters that exceed a smaller bound.
#[test]
#[expect(clippy::disallowed_methods, reason = "the wait of a flush is measured")]
fn n8_filter_cut_beside_a_slow_lookup_stalls_no_flush() {
    const WAIT_MAX: Duration = Duration::from_millis(800);

    let options = options(Arc::new(MemoryFs::new()), FilterPolicy::default());
    let db = options.open(STORE_DIR).unwrap();
    fill(&db, 0..KEYS);
    let of_levels = || db.stats().levels.iter().map(|level| level.filter_bytes).sum::<u64>();
    // A cut waits for a lookup for at least a second. Takes the minimum of several: the machine is
    // shared.
    let (mut shortest, mut rounds) = (Duration::MAX, 0);
    while rounds < 3 || (shortest >= WAIT_MAX && rounds < 20) {
        db.set_filter_bytes_max(u64::MAX).unwrap();
        db.wait_for_background().unwrap();
        assert!(of_levels() > 0);
        let flush = |_: &[u8]| {
            thread::scope(|scope| {
                scope.spawn(|| db.set_filter_bytes_max(0).unwrap());
                while of_levels() > 0 {
                    thread::yield_now();
                }
                assert!(filter_bytes(&db) > 0, "the lookup holds filters");
                db.insert(key(KEYS + rounds), [7; 16]).unwrap();
                let start = Instant::now();
                db.flush().unwrap();
                shortest = shortest.min(start.elapsed());
            });
        };
        db.get_with(key(1), flush).unwrap().unwrap();
        rounds += 1;
    }
    assert!(shortest < WAIT_MAX, "{shortest:?}");
    assert_eq!(db.iter().count() as u64, KEYS + rounds);
}
