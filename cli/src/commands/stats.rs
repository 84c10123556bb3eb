//! `sieve stats`.

use std::{io::Write, path::PathBuf};

use serde::Serialize;

use super::open_store;
use crate::{
    bench::levels::{Level, levels},
    error::Result,
};

/// Prints what a store holds: levels, memory, log, keyspaces.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the store.
    store: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What does not depend on what this process did to the store.
#[derive(Debug, Serialize)]
struct Report {
    last_sequence: u64,
    log_segments: u64,
    log_bytes: u64,
    filter_memory_bytes: u64,
    index_memory_bytes: u64,
    filters_unusable: u64,
    levels: Vec<Level>,
    keyspaces: Vec<Keyspace>,
}

#[derive(Debug, Serialize)]
struct Keyspace {
    name: String,
    runs: u64,
    tables: u64,
    table_bytes: u64,
    entries: u64,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let stats = open_store(&self.store)?.stats();
        if !self.json {
            write!(out, "{stats}")?;
            return Ok(());
        }
        let keyspaces = stats.keyspaces.iter().map(|keyspace| Keyspace {
            name: keyspace.name.clone(),
            runs: keyspace.runs,
            tables: keyspace.tables,
            table_bytes: keyspace.table_bytes,
            entries: keyspace.entries,
        });
        let report = Report {
            last_sequence: stats.last_sequence,
            log_segments: stats.log_segments,
            log_bytes: stats.log_bytes,
            filter_memory_bytes: stats.memory.filter_bytes,
            index_memory_bytes: stats.memory.index_bytes,
            filters_unusable: stats.filters_unusable,
            levels: levels(&stats),
            keyspaces: keyspaces.collect(),
        };
        let json = serde_json::to_string_pretty(&report).expect("numbers and names become JSON");
        writeln!(out, "{json}")?;
        Ok(())
    }
}
