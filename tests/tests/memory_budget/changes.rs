//! Changing the budget of an open store.

use std::sync::Arc;

use sievedb::{Db, Error, Options};
use sievedb_doubles::MemoryFs;

use crate::counting::turn;

/// All parts follow a changed budget, and memory above their limits is freed.
#[test]
fn budget_may_change_while_the_store_is_open() {
    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db: Db = options.memory_budget(64 << 20).open("db").unwrap();
    let other = db.keyspace("other").unwrap();
    for key in 0..6_000_u32 {
        db.insert(key.to_be_bytes(), [3; 500]).unwrap();
        other.insert(key.to_be_bytes(), [4; 200]).unwrap();
    }
    let limits = |db: &Db| {
        let memory = db.stats().memory;
        let parts = [memory.memtable_bytes_max, memory.filter_bytes_max, memory.writing_bytes_max];
        parts.map(|bytes| bytes >> 20)
    };
    assert_eq!(limits(&db), [16, 16, 8]);
    assert!(db.stats().memory.memtable_bytes > 4 << 20);
    let too_small = db.set_memory_budget(1 << 20);
    assert!(matches!(too_small, Err(Error::BudgetTooSmall { bytes, .. }) if bytes == 1 << 20));
    assert_eq!(limits(&db), [16, 16, 8]);
    db.set_memory_budget(8 << 20).unwrap();
    assert_eq!(limits(&db), [2, 2, 1]);
    assert!(db.stats().memory.memtable_bytes <= 2 << 20, "{:?}", db.stats().memory);
    for key in 0..6_000_u32 {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().unwrap(), [3; 500][..]);
        assert_eq!(other.get(key.to_be_bytes()).unwrap().unwrap(), [4; 200][..]);
    }
    let memory = db.stats().memory;
    assert!(memory.block_cache_bytes <= memory.block_cache_bytes_max, "{memory:?}");
    let others = memory.memtable_bytes
        + memory.filter_bytes
        + memory.index_bytes
        + memory.bookkeeping_bytes
        + memory.writing_bytes;
    // 1/8 is reserved for the allocator.
    assert!(memory.block_cache_bytes_max + others <= 7 << 20, "{memory:?}");
    assert!(memory.block_cache_bytes_max + others > 6 << 20, "{memory:?}");
}

/// A raised limit of filters takes nothing from the block cache until filters use it.
#[test]
fn block_cache_gets_unused_filter_memory() {
    let _turn = turn();
    // 7 MiB of 256 are for the allocator (8 of 492), less than 1 for buffers and an empty memtable,
    // and a step is rounded off.
    let limits = |db: &Db| {
        let memory = db.stats().memory;
        let mib = [memory.budget_bytes, memory.filter_bytes_max, memory.block_cache_bytes_max];
        mib.map(|bytes| bytes >> 20)
    };
    let open = |options: Options| {
        options.fs(Arc::new(MemoryFs::new())).worker_threads(0).open("db").unwrap()
    };
    let without = open(Options::new());
    assert_eq!(limits(&without), [256, 64, 248]);
    without.set_filter_bytes_max(300 << 20).unwrap();
    assert_eq!(limits(&without), [492, 300, 483]);
    without.set_filter_bytes_max(None).unwrap();
    assert_eq!(limits(&without), [256, 64, 248]);

    let with = open(Options::new().memory_budget(256 << 20));
    let refused = with.set_filter_bytes_max(150 << 20);
    assert!(matches!(refused, Err(Error::BudgetTooSmall { .. })), "{refused:?}");
    assert_eq!(limits(&with), [256, 64, 248]);
    with.set_filter_bytes_max(144 << 20).unwrap();
    assert_eq!(limits(&with), [256, 144, 248]);
    // A smaller budget has no space for the batch.
    let refused = with.set_memory_budget(128 << 20);
    assert!(matches!(refused, Err(Error::BudgetTooSmall { .. })), "{refused:?}");
    assert_eq!(limits(&with), [256, 144, 248]);
}
