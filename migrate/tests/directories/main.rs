//! Reads directories that RocksDB wrote, intact and damaged.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(clippy::disallowed_methods, reason = "prepares files for the reader")]

mod damage;
mod fixtures;
mod refusals;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sievedb_migrate::{Options, Result};

/// Names of the readable fixtures. `tests/fixtures/README.md` describes them.
const FIXTURES: [&str; 18] = [
    "blobs",
    "compressed-log",
    "contents-dictionary",
    "dictionary",
    "families",
    "ingested",
    "lz4-dictionary",
    "merges",
    "partitioned",
    "recycled-log",
    "reverse",
    "sums",
    "tracked-logs",
    "transactions",
    "version2",
    "version3",
    "version6",
    "version7",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Returns all entries, one per line: column family, key and value.
fn dump(path: &Path, options: &Options) -> Result<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let db = options.open(path)?;
    let mut text = String::new();
    for name in db.column_families() {
        for entry in db.entries(name)? {
            let (key, value) = entry?;
            writeln!(text, "{name}\t{}\t{}", hex(&key), hex(&value)).unwrap();
        }
    }
    Ok(text)
}

/// Copies a fixture so that a test can change it.
fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}
