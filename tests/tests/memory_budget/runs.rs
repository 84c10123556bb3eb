//! A store of many sorted runs, and the memory to merge them.

use sievedb::{Db, Options};
use sievedb_tests::rng::Rng;

use crate::{
    MIB,
    counting::{forget_peak, peak_bytes, turn},
};

/// Creates a store of this number of flushes in files, because an in-memory disk would be counted.
pub(crate) fn store_of_runs(dir: &std::path::Path, budget: usize, runs: u32) -> Db {
    // Only requested compactions run.
    let options = Options::new().worker_threads(0).background_rewrites(false);
    let options = options.memory_budget(budget as u64).block_cache_bytes(512 << 10);
    let db = options.open(dir).unwrap();
    let mut rng = Rng::new(7);
    for run in 0..runs {
        for key in 0..2_000_u32 {
            let mut value = [0; 200];
            value.chunks_mut(2).for_each(|word| word[0] = rng.below(256) as u8);
            db.insert((key * runs + run).to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
    }
    println!("{} runs", db.stats().keyspaces[0].runs);
    assert!(db.stats().keyspaces[0].runs >= 6, "many runs are the point");
    db
}

/// Read-ahead and write buffers of a compaction of many runs stay within the write memory.
#[test]
fn compaction_stays_within_the_write_memory() {
    const RUNS: u32 = 8;

    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let db = store_of_runs(dir.path(), 8 * MIB, RUNS);
    let before = forget_peak();
    db.compact().unwrap();
    let peak = peak_bytes() - before;
    let memory = db.stats().memory;
    println!("{peak} bytes at the most, {} allowed", memory.writing_bytes_max);
    assert_eq!((db.stats().keyspaces[0].runs, memory.writing_bytes), (1, 0));
    assert!(peak <= memory.writing_bytes_max as usize, "{peak} bytes at the most");
}
