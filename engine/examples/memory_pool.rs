//! Two stores of one process share a pool of memory: the one that works has most of it.
//!
//! `cargo run -p sievedb --example memory_pool`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use sievedb::{Db, MemoryPool, Options};

fn print_memory(when: &str, pool: &MemoryPool, stores: [(&str, &Db); 2]) {
    println!("{when}:");
    for (name, db) in stores {
        let memory = db.stats().memory;
        let (used, limit) = (memory.memtable_bytes, memory.memtable_bytes_max);
        println!("  memtables of {name}: {} of {} KiB", used >> 10, limit >> 10);
    }
    let stats = pool.stats();
    let (used, limit) = (stats.block_cache_bytes, stats.block_cache_bytes_max);
    println!("  block cache of both: {} of {} KiB", used >> 10, limit >> 10);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let pool = MemoryPool::new(32 << 20);
    let open = |name| Options::new().memory_pool(&pool).open(dir.path().join(name));
    let (users, events) = (open("users")?, open("events")?);
    print_memory("at first", &pool, [("users", &users), ("events", &events)]);
    for number in 0..20_000_u32 {
        events.insert(number.to_be_bytes(), [7; 500])?;
    }
    print_memory("after a load", &pool, [("users", &users), ("events", &events)]);
    drop(users);
    pool.set_bytes(16 << 20)?;
    println!("stores left: {}", pool.stats().stores);
    Ok(())
}
