//! `sieve checkpoint`.

use std::{io::Write, path::PathBuf};

use sievedb::text::bytes;

use super::{Access, check_content, open_store};
use crate::{error::Result, interrupt, text::counted};

/// Copies a store into a new directory, by hard links where possible.
///
/// The copy is a store of its own: it can be written, moved and deleted. On the same file system it
/// takes only the space of the log at first: tables are linked, but the log and the large values
/// that only the log has are copied. No process may have the store open for writing: such a process
/// can take a checkpoint itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Directory of the copy, missing or empty. Neither store may be inside the other.
    dest: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let db = open_store(&self.store, Access::Read)?;
        check_content(&self.dest)?;
        let dest = self.dest.display().to_string();
        interrupt::exit_with(move || {
            format!("no copy was written; delete {dest} if this command created it")
        });
        let checkpoint = db.checkpoint(&self.dest)?;
        writeln!(
            out,
            "{} linked, {} copied ({}), up to sequence number {}",
            counted(checkpoint.files_linked, ["file", "files"]),
            checkpoint.files_copied,
            bytes(checkpoint.bytes_copied),
            checkpoint.sequence
        )?;
        Ok(())
    }
}
