//! `sieve salvage`.

use std::{io::Write, path::PathBuf};

use sievedb::{OlderValues, Options};

use crate::error::{Error, Result};

/// Writes what can be read of a damaged store into a new one, and lists what is lost; ends with 1 if
/// anything is.
///
/// Also of a store that cannot be opened, unless CURRENT or the manifest is damaged. The old folder stays as it
/// is; its store must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the damaged store.
    old: PathBuf,
    /// Folder of the new store: missing, or empty.
    new: PathBuf,
    /// Keep keys of which only values are left that may be older than what is lost.
    #[arg(long)]
    keep_older: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let older = if self.keep_older { OlderValues::Keep } else { OlderValues::LeaveOut };
        let report = Options::new().salvage(&self.old, &self.new, older)?;
        writeln!(out, "{report}")?;
        match report.lost.len() {
            0 => Ok(()),
            count => Err(Error::Problems { count }),
        }
    }
}
