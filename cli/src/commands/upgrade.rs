//! `sieve upgrade`.

use std::{error::Error as _, io::Write, path::PathBuf};

use sievedb::{FORMAT_VERSION, FormatReport};

use super::options;
use crate::{
    error::{Error, Result},
    messages::message,
    text::counted,
};

/// Checks whether this release can read every file of a store, and rewrites files of older formats.
///
/// Lists the releases that wrote the files. There is one format version so far, so no file needs to
/// be rewritten. Takes no lock, so a process may have the store open. Exits with 1 if a file is
/// unreadable: damaged, or written by a later release. Does not read the data, as `verify` does.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Only report. Until there is a second format version, the command never writes.
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let FormatReport { readable, unreadable, .. } = options().formats(&self.store)?;
        for (writer, files) in &readable {
            let files = counted(*files, ["file", "files"]);
            writeln!(out, "{files} of format version {FORMAT_VERSION}, written by {writer}")?;
        }
        for error in &unreadable {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            writeln!(out, "unreadable: {}{cause}", message(error))?;
        }
        if !unreadable.is_empty() {
            let files = counted(unreadable.len() as u64, ["file", "files"]);
            return Err(Error::Problems {
                summary: format!("this release cannot read {files}, listed above"),
                advice: format!(
                    "open a store of a later release with that release; `sieve verify {}` lists damage",
                    self.store.display()
                ),
            });
        }
        let mode = if self.dry_run { "nothing would be rewritten" } else { "nothing to rewrite" };
        writeln!(out, "every file has the current format: {mode}")?;
        Ok(())
    }
}
