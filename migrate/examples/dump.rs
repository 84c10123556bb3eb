//! Prints the entries of a RocksDB directory: column family, key and value in hexadecimal digits.
//!
//! `cargo run -p sievedb-migrate --example dump -- [DIRECTORY]`. Default: a small directory of the
//! tests.

use std::{
    error::Error,
    io::{self, BufWriter, Write as _},
};

use sievedb_migrate::RocksDb;

fn main() -> Result<(), Box<dyn Error>> {
    let small = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/version6");
    let path = std::env::args().nth(1).unwrap_or_else(|| small.into());
    let mut out = BufWriter::new(io::stdout().lock());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    let db = RocksDb::open(path)?;
    for name in db.column_families() {
        for entry in db.entries(name)? {
            let (key, value) = entry?;
            writeln!(out, "{name}\t{}\t{}", hex(&key), hex(&value))?;
        }
    }
    Ok(out.flush()?)
}
