//! Savings by a prefix filter: events of many users, most of whom have none in a given table.
//!
//! `cargo run --release -p sievedb --example prefix`

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use sievedb::{Db, KeyspaceOptions, Options, PrefixExtractor};
use tempfile::TempDir;

const USERS: u64 = 200_000;
const EVENTS: u64 = 400_000;

/// A key: user, then number of the event. Every other user has none at all.
fn key(user: u64, event: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&user.to_be_bytes());
    key[8..].copy_from_slice(&event.to_be_bytes());
    key
}

/// The user of an event, by lot.
fn user_of(event: u64) -> u64 {
    let mixed = (event + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) % (USERS / 2) * 2
}

/// Returns a store in a temporary directory. Its block cache has a tenth of the store's size.
fn filled(keyspace: KeyspaceOptions) -> Result<(TempDir, Db), Box<dyn Error>> {
    let keyspace = keyspace.memtable_bytes(8 << 20);
    let dir = tempfile::tempdir()?;
    let options = Options::new().block_cache_bytes(4 << 20);
    let db = options.keyspace(keyspace).open(dir.path())?;
    for event in 0..EVENTS {
        db.insert(key(user_of(event), event), [b'e'; 60])?;
    }
    db.flush()?;
    Ok((dir, db))
}

/// Scans the events of users, and prints the cost.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn report(name: &str, db: &Db, users: impl Iterator<Item = u64>) -> Result<(), Box<dyn Error>> {
    let (mut scans, mut events) = (0, 0);
    let before = db.stats().table_reads.calls;
    let mut took = Duration::ZERO;
    for user in users {
        let begin = Instant::now();
        for entry in db.prefix(user.to_be_bytes()) {
            entry?;
            events += 1;
        }
        took += begin.elapsed();
        scans += 1;
    }
    let reads = (db.stats().table_reads.calls - before) as f64 / f64::from(scans);
    let us = took.as_secs_f64() * 1e6 / f64::from(scans);
    println!("  {scans} {name}: {events} events; {reads:.3} reads and {us:.1} us each");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let eight = PrefixExtractor::FixedLength(8);
    let cases = [
        ("without prefix filters", KeyspaceOptions::new()),
        ("with prefix filters", KeyspaceOptions::new().prefix_extractor(eight)),
    ];
    for (name, keyspace) in cases {
        let (_dir, db) = filled(keyspace)?;
        let stats = db.stats();
        let (runs, filters) = (stats.keyspaces[0].runs, stats.memory.filter_bytes >> 10);
        println!("{name}: {runs} sorted runs, {filters} KiB of filters");
        report("users with events", &db, (0..USERS).step_by(20))?;
        report("users without", &db, (1..USERS).step_by(20))?;
        let levels = db.stats().levels;
        let probes: u64 = levels.iter().map(|level| level.prefix_probes).sum();
        let ruled_out: u64 = levels.iter().map(|level| level.prefix_negatives).sum();
        println!("  {probes} probes of prefix filters, {ruled_out} tables ruled out");
    }
    Ok(())
}
