//! `sieve-migrate`: copies a database of another engine into a new SieveDB store, and verifies the
//! copy.

use std::{
    error::Error as _,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use sievedb_migrate_others::{Engine, Result, migrate, open};

/// Copies a database of another engine into a new SieveDB store, and verifies the copy.
///
/// Close the database first. Each keyspace, table or tree becomes a keyspace. Prints the number of
/// entries, their bytes and a digest of each keyspace.
///
/// The store is `NAME.partial` until it is complete. After an interruption, delete `NAME.partial`,
/// then migrate again. Exits with 2 if it fails or the copy differs.
#[derive(Debug, Parser)]
#[command(name = "sieve-migrate", version)]
struct Args {
    /// Engine that wrote the database.
    engine: Engine,
    /// Directory or file of the database.
    source: PathBuf,
    /// Directory of the new store, missing or empty.
    dest: PathBuf,
}

fn run(args: &Args) -> Result<String> {
    let source = open(args.engine, &args.source)?;
    let copied = migrate(&*source, &args.dest)?;
    let lines = copied.iter().map(|copied| {
        let (name, digest) = (&copied.name, copied.digest);
        format!("{name:?}\t{} entries\t{} bytes\t{digest}\n", digest.entries(), copied.bytes)
    });
    Ok(lines.collect())
}

fn main() -> ExitCode {
    let result = run(&Args::parse());
    let mut text = String::new();
    match &result {
        Ok(report) => text += report,
        Err(error) => {
            text += &format!("sieve-migrate: {error}\n");
            let mut cause = error.source();
            while let Some(error) = cause {
                text += &format!("  caused by: {error}\n");
                cause = error.source();
            }
        }
    }
    // If the stream is closed, the exit code still reports the result.
    let _ = match &result {
        Ok(_) => io::stdout().write_all(text.as_bytes()),
        Err(_) => io::stderr().write_all(text.as_bytes()),
    };
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}
