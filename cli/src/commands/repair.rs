//! `sieve repair`.

use std::{io::Write, path::PathBuf};

use sievedb::{OlderValues, Options};

use crate::{
    error::{Error, Result},
    interrupt,
};

/// Writes what can be read of a damaged store into a new one, and lists what is lost.
///
/// Exits with 0 if nothing is lost, with 1 if something is (the output lists it), and with 2 if
/// there is no new store: the arguments are wrong, or a file cannot be read or written.
///
/// Works also if the store cannot be opened, and without a manifest: tables and log then say which
/// keyspaces there are. Never changes the damaged store, which must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the damaged store.
    source: PathBuf,
    /// Directory of the new store: missing, or empty. It must not lie in the damaged store, nor
    /// that one in it.
    dest: PathBuf,
    /// Keep keys of which only values are left that may be older than what is lost.
    #[arg(long)]
    keep_older: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let older = if self.keep_older { OlderValues::Keep } else { OlderValues::LeaveOut };
        let dest = self.dest.display().to_string();
        interrupt::exit_with(move || format!("{dest} is incomplete; delete it, and repair again"));
        let report = Options::new().repair(&self.source, &self.dest, older)?;
        writeln!(out, "{report}")?;
        match report.lost.len() {
            0 => Ok(()),
            count => Err(Error::Lost { count }),
        }
    }
}
