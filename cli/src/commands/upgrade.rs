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
        let mut report = String::new();
        for (writer, files) in &readable {
            let files = counted(*files, ["file", "files"]);
            report += &format!("{files} of format version {FORMAT_VERSION}, written by {writer}\n");
        }
        for error in &unreadable {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            report += &format!("unreadable: {}{cause}\n", message(error));
        }
        let written = out.write_all(report.as_bytes());
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
        written?;
        let mode = if self.dry_run { "nothing would be rewritten" } else { "nothing to rewrite" };
        writeln!(out, "every file has the current format: {mode}")?;
        Ok(())
    }
}
