//! What was in the cache before a compaction is there afterwards.

use std::sync::Arc;

use sievedb::fs::Fs;
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{FOLDER, small_keyspace, small_options};

const KEYS: u32 = 20_000;

#[test]
fn hot_keys_stay_cached_across_a_compaction() {
    let keyspace = small_keyspace().memtable_bytes(8 << 20).table_bytes(256 << 10);
    let options = small_options(Arc::new(MemoryFs::new()) as Arc<dyn Fs>)
        .log_segment_bytes(64 << 20)
        .log_bytes_max(256 << 20)
        .block_cache_bytes(64 << 20);
    let db = options.keyspace(keyspace).open(FOLDER).unwrap();
    let write = |value: u8| {
        for number in 0..KEYS {
            db.insert(number.to_be_bytes(), [value; 100]).unwrap();
        }
    };
    let hot = || (0..KEYS / 10).map(u32::to_be_bytes);
    let (reads, cached) = (|| db.stats().table_reads.calls, || db.stats().memory.block_cache_bytes);
    write(1);
    db.compact().unwrap();
    assert_eq!(cached(), 0, "nobody has read anything");
    hot().for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), vec![1; 100]));
    let before = cached();
    assert!(before > 0);
    write(2);
    db.compact().unwrap();
    let after = cached();
    assert!(after > before / 2 && after < before * 2, "{before} {after}");
    let reads_before = reads();
    hot().for_each(|key| assert_eq!(db.get(key).unwrap().unwrap(), vec![2; 100]));
    // The first key of a block may have gone to another one: at the ends of the old blocks.
    assert!(reads() - reads_before <= 4, "{} reads", reads() - reads_before);
}
