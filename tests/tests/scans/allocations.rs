//! A scan with borrowed entries allocates per block, not per step.

use std::sync::Arc;

use sievedb::fs::Fs;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::STORE_DIR;

use super::{key, options};
use crate::corruption::allocation::{count_in, reset_largest};

const KEYS: u64 = 4_000;

#[test]
fn borrowed_entries_of_cached_blocks_do_not_allocate() {
    reset_largest();
    let options = options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>);
    let db = options.block_cache_bytes(64 << 20).open(STORE_DIR).unwrap();
    // Two runs with alternating entries.
    for run in 0..2 {
        for number in (run..KEYS).step_by(2) {
            db.insert(key(number), [7; 50]).unwrap();
        }
        db.flush().unwrap();
    }
    assert_eq!(db.stats().keyspaces[0].runs, 2);
    assert_eq!(db.iter().count() as u64, KEYS);
    for back in [false, true] {
        let mut range = db.iter();
        let mut step = || match back {
            false => range.next_ref().unwrap().map(|entry| entry.value().len()),
            true => range.next_back_ref().unwrap().map(|entry| entry.value().len()),
        };
        // The cursors are created, and their buffers have grown.
        assert_eq!(step(), Some(50));
        let (bytes, allocations) = count_in(|| (0..KEYS - 2).filter_map(|_| step()).sum::<usize>());
        assert_eq!(bytes as u64, (KEYS - 2) * 50);
        assert!(allocations <= 8, "{allocations} allocations, back: {back}");
    }
    let mut range = db.iter();
    range.seek(key(0));
    assert!(range.next_ref().unwrap().is_some());
    let seeks = |range: &mut sievedb::Range| {
        (0..KEYS).step_by(97).for_each(|number| {
            range.seek(key(number));
            assert_eq!(range.next_ref().unwrap().unwrap().key(), key(number));
        });
    };
    let ((), allocations) = count_in(|| seeks(&mut range));
    assert!(allocations <= 8, "{allocations} allocations");
}
