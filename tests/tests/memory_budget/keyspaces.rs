//! Many keyspaces.

use std::sync::Arc;

use sievedb::{Keyspace, Options, fs::MemoryFs};

use crate::counting::{live_bytes, turn};

/// A keyspace that nobody writes to takes next to nothing, and one that had one write a little.
#[test]
fn idle_keyspaces_cost_little() {
    const KEYSPACES: usize = 1_000;

    let _turn = turn();
    let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
    let db = options.memory_budget(16 << 20).open("db").unwrap();
    let before = live_bytes();
    let keyspaces: Vec<Keyspace> =
        (0..KEYSPACES).map(|number| db.keyspace(&format!("{number}")).unwrap()).collect();
    // With their records in the log and the manifest of a disk in memory.
    let each = (live_bytes() - before) / KEYSPACES;
    println!("{each} bytes for an idle keyspace");
    assert!(each < 4 << 10, "{each} bytes each");
    for keyspace in &keyspaces {
        keyspace.insert("key", "value").unwrap();
    }
    let memory = db.stats().memory;
    println!("{memory:?}");
    assert!(memory.memtable_bytes < memory.memtable_bytes_max / 2, "{memory:?}");
    assert!(keyspaces.iter().all(|keyspace| keyspace.contains_key("key").unwrap()));
}
