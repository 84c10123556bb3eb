//! Many stores in one pool.

use std::{
    collections::BTreeMap,
    sync::{Arc, Barrier},
    thread,
};

use sievedb::{KeyspaceOptions, MemoryPool, Options};
use sievedb_doubles::MemoryFs;
use sievedb_tests::handles::HandleFs;

use super::{MIB, check_sum, write};

const STORES: u64 = 20;
const THREADS: u64 = 4;

/// Threads open, write, read and close stores of one pool; each store equals its model.
#[test]
fn pool_bounds_many_short_lived_stores() {
    let pool = MemoryPool::new(8 * MIB * STORES);
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, barrier) = (&pool, &barrier);
            scope.spawn(move || {
                let stores = (thread..STORES).step_by(THREADS as usize);
                let mut stores: Vec<_> = stores
                    .map(|store| (store, Arc::new(MemoryFs::new()), BTreeMap::new()))
                    .collect();
                for round in 0..3 {
                    barrier.wait();
                    let open: Vec<_> =
                        stores.iter_mut().map(|(store, fs, model)| (*store, fs, model)).collect();
                    let mut dbs = Vec::new();
                    for (store, fs, model) in open {
                        let options = Options::new().fs(Arc::clone(fs) as _).memory_pool(pool);
                        let workers = (store % 3) as usize;
                        let db = options.worker_threads(workers).open("db").unwrap();
                        for key in 0..1_500_u64 {
                            let key = (key * (store + 7) + round * 500) % 4_000;
                            let value = vec![(key + round) as u8; 500];
                            db.insert(key.to_be_bytes(), &value[..]).unwrap();
                            model.insert(key.to_be_bytes().to_vec(), value);
                        }
                        check_sum(pool);
                        dbs.push((db, model));
                    }
                    for (db, model) in dbs {
                        let found = db.iter().map(|entry| entry.unwrap());
                        let found: BTreeMap<_, _> =
                            found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                        assert!(found == *model, "{} entries", found.len());
                        check_sum(pool);
                        db.close().unwrap();
                    }
                }
            });
        }
    });
    let stats = pool.stats();
    let left = stats.memtable_bytes + stats.filter_bytes + stats.index_bytes + stats.writing_bytes;
    assert_eq!((stats.stores, left, stats.block_cache_bytes), (0, 0, 0), "{stats:?}");
}

/// An idle store would otherwise keep the descriptors that a new one needs.
#[test]
fn stores_of_a_pool_close_files_for_one_another() {
    let fs = Arc::new(HandleFs::new(Arc::new(MemoryFs::new())));
    let pool = MemoryPool::new(16 * MIB);
    let open = |name: &str| {
        let options = Options::new().fs(Arc::clone(&fs) as _).memory_pool(&pool);
        let keyspace = KeyspaceOptions::new().table_bytes(4 << 10);
        options.worker_threads(0).keyspace(keyspace).open(name).unwrap()
    };
    let large = open("large");
    write(&large, 0, MIB);
    large.compact().unwrap();
    let entries = large.iter().count();
    let open_files = fs.open_files();
    assert!(open_files > 50, "{open_files} files are open");
    fs.limit(open_files);
    let small = open("small");
    small.insert("key", "value").unwrap();
    small.flush().unwrap();
    assert_eq!(small.iter().count(), 1);
    assert!(fs.open_files() < open_files);
    assert_eq!(large.iter().count(), entries);
}
