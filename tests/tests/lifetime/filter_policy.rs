//! A store that is opened with a different filter policy each time.

use std::sync::Arc;

use sievedb::{Db, FilterPolicy, FilterPolicyKind, KeyspaceOptions, Options, clock::ManualClock};
use sievedb_doubles::MemoryFs;

use super::small_store::{STORE_DIR, flush};

fn open(fs: &Arc<MemoryFs>, policy: FilterPolicy) -> Db {
    let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 20).filter_policy(policy);
    let options = Options::new().fs(fs.clone()).clock(Arc::new(ManualClock::new()));
    options.worker_threads(0).keyspace(keyspace).open(STORE_DIR).unwrap()
}

/// Tables of all policies coexist, are compacted and recovered with any.
#[test]
fn every_policy_reads_tables_of_other_policies() {
    use FilterPolicyKind::{Auto, Bloom, Fuse, None, Ribbon};
    const KEYS: u32 = 2_500;

    let fs = Arc::new(MemoryFs::new());
    let kinds = [Auto, Bloom, Ribbon, Fuse, None];
    let policies = kinds.into_iter().flat_map(|kind| {
        [0.0, 0.001, 1.0, 40.0].map(|bits| FilterPolicy::new(kind).bits_per_key(bits))
    });
    let mut written = 0;
    for (i, policy) in policies.enumerate() {
        let db = open(&fs, policy);
        flush(&db, written..written + KEYS, "value");
        written += KEYS;
        if i % 3 == 2 {
            db.compact().unwrap();
        }
        // Only the log has these keys, and then the memtable of the next process.
        for key in written..written + 10 {
            db.insert(key.to_be_bytes(), "log").unwrap();
        }
        for key in 0..written + 10 {
            assert!(db.get(key.to_be_bytes()).unwrap().is_some(), "{policy:?} lost {key}");
        }
        drop(db);
        written += 10;
    }
    let db = open(&fs, FilterPolicy::default());
    assert!((0..written).all(|key| db.get(key.to_be_bytes()).unwrap().is_some()));
}

/// The policy of the open applies to new tables, and after background work to all others.
#[test]
fn last_policy_applies() {
    use FilterPolicyKind::{Bloom, None};

    let fs = Arc::new(MemoryFs::new());
    let bytes = |kind, keys| {
        let db = open(&fs, FilterPolicy::new(kind));
        flush(&db, keys, "value");
        db.stats().memory.filter_bytes
    };
    let first = bytes(Bloom, 0..1_000);
    assert!((1_250..2_000).contains(&first), "{first}");
    assert_eq!(bytes(None, 1_000..2_000), 0);
    // Filters of the first two are rebuilt, and rounded to whole lines differently.
    let all = bytes(Bloom, 2_000..3_000);
    assert!((3 * first..=3 * first + 256).contains(&all), "{all}, and {first} of the first");
}
