//! `sieve repair`.

use std::{io::Write, path::PathBuf};

use sievedb::{OlderValues, Options};

use crate::{
    error::{Error, Result},
    interrupt,
};

/// Copies the readable data of a damaged store into a new store, and lists all losses.
///
/// Exits with 0 if nothing is lost, and with 1 if data is lost. Exits with 2 if no new store was
/// written: invalid arguments, or a file that cannot be read or written.
///
/// Also works if the store cannot be opened. Without a manifest, it finds the keyspaces in the
/// tables and the log. Never changes the damaged store, which must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the damaged store.
    source: PathBuf,
    /// Directory of the new store, missing or empty. Neither store may be inside the other.
    dest: PathBuf,
    /// Keep keys whose newest value may be lost, with the newest readable value.
    #[arg(long)]
    keep_older: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let older = if self.keep_older { OlderValues::Keep } else { OlderValues::LeaveOut };
        let dest = self.dest.display().to_string();
        interrupt::exit_with(move || format!("{dest} is incomplete; delete it, then repair again"));
        let report = Options::new().repair(&self.source, &self.dest, older)?;
        writeln!(out, "{report}")?;
        match report.lost.len() {
            0 => Ok(()),
            count => Err(Error::Lost { count }),
        }
    }
}
