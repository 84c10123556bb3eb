//! Long values in blob files: bytes written and read.

use std::fs;

use sievedb::{KeyspaceOptions, Options};
use sievedb_benches::key;
use sievedb_workload::random::{Permutation, Random};

use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

/// Bytes of a value. They do not compress.
const VALUE_BYTES: usize = 16 << 10;

/// Writes of each key.
const WRITES: u64 = 5;

/// Memory of the store, in bytes: a small part of the data.
const BUDGET_BYTES: u64 = 64 * MIB;

/// Measures overwrites of all keys in random order, until no compaction is due, then lookups in
/// random order.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let keys = scale.pick(100_000, 8_000);
    let options = KeyspaceOptions::new().blob_value_bytes(4096);
    let folder = scale.directory.join("db");
    let db = Options::new().memory_budget(BUDGET_BYTES).keyspace(options).open(&folder)?;
    let before = io_bytes("wchar: ")?;
    for write in 0..WRITES {
        let order = Permutation::new(keys, write);
        for index in (0..keys).map(|at| order.at(at)) {
            db.insert(key(index), long_value(index, write))?;
        }
    }
    db.flush()?;
    db.wait_for_background()?;
    let background = db.stats().background;
    let written = background.flush_bytes_written + background.compaction_bytes_written;
    let calls = io_bytes("wchar: ")? - before;
    let user_bytes = keys * WRITES * VALUE_BYTES as u64;
    let live_bytes = keys * VALUE_BYTES as u64;
    let space = bytes_in(&folder)?;

    let before = io_bytes("rchar: ")?;
    let hits = keys.min(20_000);
    let order = Permutation::new(keys, WRITES);
    for index in (0..hits).map(|at| order.at(at)) {
        let found = db.get(key(index))?.ok_or("a key is missing")?;
        assert!(found == long_value(index, WRITES - 1), "the value is the last one");
    }
    let read = (io_bytes("rchar: ")? - before) as f64 / hits as f64;
    Ok(vec![
        Figure::new(
            "values of 16 KiB in blob files: bytes written, without the log, over those of the user",
            "x",
            written as f64 / user_bytes as f64,
        )
        .at_most(1.5),
        Figure::new(
            "the same, bytes of all write calls, with the log",
            "x",
            calls as f64 / user_bytes as f64,
        )
        .at_most(1.5),
        Figure::new("the same, disk space over live values", "x", space as f64 / live_bytes as f64),
        Figure::new("the same, bytes read per hit over the value", "x", read / VALUE_BYTES as f64)
            .at_most(1.1),
    ])
}

/// Returns the value that `write` gives to the key `index`.
fn long_value(index: u64, write: u64) -> Vec<u8> {
    let mut random = Random::new(index * WRITES + write);
    (0..VALUE_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Returns a counter of the bytes that calls of this process moved.
fn io_bytes(counter: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let counters = fs::read_to_string("/proc/self/io")?;
    let line = counters.lines().find_map(|line| line.strip_prefix(counter));
    Ok(line.ok_or("no such counter")?.parse()?)
}

#[expect(clippy::disallowed_methods, reason = "looks at sizes alone")]
fn bytes_in(folder: &std::path::Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
