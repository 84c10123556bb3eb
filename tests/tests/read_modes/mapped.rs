//! Maps of tables that were replaced.

use sievedb::{Compression, Db, Durability, ReadMode};

use super::{KEYS, MODES, dir, options, value};

/// Returns the deleted files below `path` that the process has mapped.
fn deleted_maps(path: &std::path::Path) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = path.to_str().unwrap();
    let deleted = maps.lines().filter(|it| it.contains(path) && it.ends_with("(deleted)"));
    deleted.map(str::to_owned).collect()
}

fn fill(db: &Db) {
    let mut batch = db.batch();
    for key in 0..KEYS {
        batch.insert(db, key.to_be_bytes(), value(key)).unwrap();
    }
    batch.commit(Durability::OsBuffer).unwrap();
    db.compact().unwrap();
    db.wait_for_background().unwrap();
}

#[test]
fn cached_blocks_do_not_keep_the_maps_of_deleted_tables() {
    for mode in MODES {
        for follows in [false, true] {
            let dir = dir();
            let options = || options(mode, Compression::None).block_cache_bytes(64 << 20);
            let Ok(writer) = options().open(dir.path()) else { continue };
            fill(&writer);
            let follower = follows.then(|| options().follow(true).open(dir.path()).unwrap());
            let reader = follower.as_ref().unwrap_or(&writer);
            for key in 0..KEYS {
                assert_eq!(reader.get(key.to_be_bytes()).unwrap().unwrap(), value(key));
            }
            let kept = reader.get(20_u32.to_be_bytes()).unwrap().unwrap();
            fill(&writer);
            reader.refresh().unwrap();
            writer.wait_for_background().unwrap();
            let stats = reader.stats();
            let is_mapped = mode == ReadMode::Map;
            let (mapped, tables) = (stats.memory.mapped_bytes, stats.total().bytes);
            assert_eq!(mapped > tables, is_mapped, "a value keeps its map, which is counted");
            assert_eq!(deleted_maps(dir.path()).len(), usize::from(is_mapped), "{mode:?}");
            drop(kept);
            assert!(deleted_maps(dir.path()).is_empty(), "{mode:?}, {follows}");
            let mapped = reader.stats().memory.mapped_bytes;
            assert_eq!(mapped, if is_mapped { tables } else { 0 });
        }
    }
}
