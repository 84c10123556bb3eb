//! Write, read and space amplification of each style of compaction, simulated. Prints a table in
//! Markdown, that of `docs/tuning.md` by default.
//!
//! ```sh
//! cargo run --release -p sievedb-benches --example amplification -- \
//!     [--writes MILLIONS] [--keys MILLIONS] [--memtable-mib MIB]
//! ```
//!
//! Entries have keys of 16 bytes and values of 100. Keys are random; with `--keys 0` each is new.
//! Compactions take no time: see `engine/src/compaction/simulation.rs`.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use clap::Parser;
use sievedb::{
    KeyspaceOptions,
    simulation::{Writes, simulate, styles},
};

#[derive(Debug, Parser)]
struct Args {
    /// Millions of writes.
    #[arg(long, default_value_t = 30)]
    writes: u64,
    /// Millions of different keys; 0 for as many as writes.
    #[arg(long, default_value_t = 10)]
    keys: u64,
    /// Size of a memtable, in MiB.
    #[arg(long, default_value_t = 32)]
    memtable_mib: usize,
}

fn main() {
    const MILLION: u64 = 1_000_000;
    let Args { writes, keys, memtable_mib } = Args::parse();
    let keys = (keys > 0).then_some(keys * MILLION);
    println!("| style | writes | runs, mean | runs, most | space | space, peak |");
    println!("|-------|-------:|-----------:|-----------:|------:|------------:|");
    for (name, style) in styles() {
        let options = KeyspaceOptions::new().memtable_bytes(memtable_mib << 20);
        let options = options.compaction_style(style);
        println!("| {name} | {}", simulate(&options, Writes { count: writes * MILLION, keys }));
    }
}
