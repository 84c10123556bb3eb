//! `sieve export`.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use clap::ValueEnum;
use sievedb::Keyspace;
use sievedb_migrate::{Digest, export::ExportOptions, store::Copied};

use super::{
    Access, KeyspaceArgs,
    bounds::{Bounds, BoundsArgs},
    copied::table,
};
use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    records::{Csv, Json, Output, Sink, Tables},
    text::{Notation, counted},
};

/// Writes entries for other programs: JSON, CSV, or tables that RocksDB ingests.
///
/// `sieve import` reads JSON and CSV with the same `--format` and `--hex`. Keys and values are any
/// bytes, in the notation of `sieve scan`. Expiry times are not exported.
///
/// The format `rocksdb` writes a directory with a subdirectory for each keyspace. Its tables have
/// disjoint key ranges. The command verifies each table by reading it again. Pass the tables to
/// `IngestExternalFile`, or to `ldb ingest_extern_sst`. RocksDB 6.6 or later reads them.
///
/// The output is `NAME.partial` until it is complete and durable. With `--output`, prints the
/// number of entries and a digest of each keyspace, as `sieve migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Export all keyspaces. Records of JSON and CSV then name their keyspace.
    #[arg(long, conflicts_with = "keyspace")]
    all_keyspaces: bool,
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    bounds: BoundsArgs,
    /// Format of the export.
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    /// File, which must not exist, or directory, missing or empty. Default: standard output.
    #[arg(long, short, value_name = "PATH", required_if_eq("format", "rocksdb"))]
    output: Option<PathBuf>,
    /// Largest table of RocksDB, 1 to 4095 MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(1..=4095))]
    table_mib: u64,
    /// Do not compress the tables, for a RocksDB that was built without LZ4.
    #[arg(long)]
    no_compression: bool,
}

/// A format of exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One JSON object per line: `{"key":"a","value":"1"}`.
    Json,
    /// CSV with the columns `key` and `value`.
    Csv,
    /// Tables of RocksDB.
    Rocksdb,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let bounds = self.bounds.read(self.notation)?;
        let (db, keyspace) = self.keyspace.open(Access::Beside)?;
        let keyspaces = match self.all_keyspaces {
            true => {
                let names = db.keyspaces()?;
                names.iter().map(|name| db.open_keyspace(name)).collect::<sievedb::Result<_>>()?
            }
            false => vec![keyspace],
        };
        let mut sink = self.sink(out)?;
        let copied = copy_all(&keyspaces, &bounds, &mut *sink)?;
        sink.finish()?;
        if self.output.is_some() {
            writeln!(out, "{}", table(&copied))?;
        }
        Ok(())
    }

    fn sink<'a>(&self, stdout: &'a mut dyn Write) -> Result<Box<dyn Sink + 'a>> {
        let path = self.output.as_deref();
        Ok(match self.format {
            Format::Json => {
                let output = Output::new(path, stdout)?;
                Box::new(Json::new(output, self.notation, self.all_keyspaces))
            }
            Format::Csv => {
                let output = Output::new(path, stdout)?;
                Box::new(Csv::new(output, self.notation, self.all_keyspaces)?)
            }
            Format::Rocksdb => {
                // An argument that this format requires.
                let path = path.unwrap_or(Path::new("."));
                let options = ExportOptions::new()
                    .file_bytes(self.table_mib << 20)
                    .compress(!self.no_compression);
                Box::new(Tables(options.create(path)?))
            }
        })
    }
}

fn copy_all(keyspaces: &[Keyspace], bounds: &Bounds, sink: &mut dyn Sink) -> Result<Vec<Copied>> {
    let interrupted = interrupt::flag();
    let mut all = Vec::new();
    let mut written = 0;
    for keyspace in keyspaces {
        let mut copied = Copied { name: keyspace.name(), bytes: 0, digest: Digest::default() };
        let progress = progress::counter("entries", &format!("exporting {:?}", copied.name));
        sink.keyspace(&copied.name)?;
        for entry in bounds.entries(keyspace) {
            let (key, value) = entry?;
            if interrupted.load(Ordering::Acquire) {
                let done = format!("exported: {}", counted(written, ["entry", "entries"]));
                return Err(Error::Interrupted { done });
            }
            sink.add(&key, &value)?;
            written += 1;
            copied.digest.add(&key, &value);
            copied.bytes += (key.len() + value.len()) as u64;
            progress.inc(1);
        }
        progress.finish_and_clear();
        all.push(copied);
    }
    Ok(all)
}
