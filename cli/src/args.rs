//! The commands and their arguments.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::{
    commands::{
        backup, bench_misses, bench_open, bench_reads, changes, checkpoint, clear, cluster,
        compact, drop, dump, explain, export, get, history, import, keyspaces, merge, migrate, put,
        rename, repair, rm, scan, stats, ttl, upgrade, verify,
    },
    error::Result,
};

/// Reads, writes, verifies and repairs SieveDB stores.
///
/// Keys and values are text with the escapes `\n`, `\t`, `\r`, `\\` and `\x41` (two hexadecimal
/// digits), in arguments and in the output. `--hex` reads and prints hexadecimal digits instead.
///
/// Exits with 0 on success. Exits with 1 if the key is absent, the store or backup set has
/// problems, a scan or repair is incomplete, a migrated copy differs, or a benchmark found a wrong
/// result. Exits with 2 if the command failed, and with 130 after Ctrl-C.
///
/// In a store with a merge operator of its program, only `verify`, `dump`, `upgrade` and `repair`
/// work. Its backup sets can be listed, verified, pruned and restored. Compactions by `sieve` apply
/// no compaction filter of the program, and build no filters by its prefix functions.
#[derive(Debug, Parser)]
#[command(name = "sieve", version)]
pub(crate) struct Args {
    #[cfg(feature = "encryption")]
    #[command(flatten)]
    keys: crate::keys::KeyArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs benchmarks.
    #[command(subcommand)]
    Bench(Bench),
    Explain(explain::Args),
    Get(get::Args),
    History(history::Args),
    Changes(changes::Args),
    Put(put::Args),
    Merge(merge::Args),
    Migrate(migrate::Args),
    Ttl(ttl::Args),
    Rm(rm::Args),
    Scan(scan::Args),
    Export(export::Args),
    Import(import::Args),
    Keyspaces(keyspaces::Args),
    #[cfg(feature = "encryption")]
    Reencrypt(crate::commands::reencrypt::Args),
    Rename(rename::Args),
    Clear(clear::Args),
    Drop(drop::Args),
    Compact(compact::Args),
    Stats(stats::Args),
    Dump(dump::Args),
    Verify(verify::Args),
    Checkpoint(checkpoint::Args),
    #[command(subcommand)]
    Backup(backup::Command),
    Repair(repair::Args),
    Upgrade(upgrade::Args),
    Cluster(cluster::Args),
}

#[derive(Debug, Subcommand)]
enum Bench {
    Misses(bench_misses::Args),
    Open(bench_open::Args),
    Reads(bench_reads::Args),
}

impl Args {
    /// Runs the command and writes its output to `out`.
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<()> {
        #[cfg(feature = "encryption")]
        self.keys.load()?;
        match self.command {
            #[cfg(feature = "encryption")]
            Command::Reencrypt(args) => args.run(out),
            Command::Bench(Bench::Misses(args)) => args.run(out),
            Command::Bench(Bench::Open(args)) => args.run(out),
            Command::Bench(Bench::Reads(args)) => args.run(out),
            Command::Explain(args) => args.run(out),
            Command::Get(args) => args.run(out),
            Command::History(args) => args.run(out),
            Command::Changes(args) => args.run(out),
            Command::Put(args) => args.run(),
            Command::Rm(args) => args.run(),
            Command::Scan(args) => args.run(out),
            Command::Export(args) => args.run(out),
            Command::Import(args) => args.run(out),
            Command::Keyspaces(args) => args.run(out),
            Command::Merge(args) => args.run(),
            Command::Migrate(args) => args.run(out),
            Command::Ttl(args) => args.run(out),
            Command::Rename(args) => args.run(),
            Command::Clear(args) => args.run(),
            Command::Drop(args) => args.run(),
            Command::Compact(args) => args.run(),
            Command::Stats(args) => args.run(out),
            Command::Dump(args) => args.run(out),
            Command::Verify(args) => args.run(out),
            Command::Checkpoint(args) => args.run(out),
            Command::Backup(command) => command.run(out),
            Command::Repair(args) => args.run(out),
            Command::Upgrade(args) => args.run(out),
            Command::Cluster(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
