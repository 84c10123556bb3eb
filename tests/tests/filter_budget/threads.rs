//! The budget changes while threads read and write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::thread;

use sievedb::{FilterPolicy, fs::MemoryFs};
use sievedb_tests::{rng::Rng, settings::seed};

use super::{FOLDER, KEYS, fill, filter_bytes, key, options};

#[test]
fn readers_see_every_key_while_the_budget_changes() {
    let options = options(Arc::new(MemoryFs::new()), FilterPolicy::default());
    let db = options.worker_threads(2).open(FOLDER).unwrap();
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
