//! `sieve dump`.

use std::{io::Write, path::PathBuf};

use crate::error::{Error, Result};

/// Prints the bytes of a file of a store (table, filter, log segment, manifest) with their meaning.
///
/// Shows what it can of a damaged file. The store may be open meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A `.sst`, `.filter` or `.log` file, `MANIFEST-...`, `CURRENT` or `CLOSED`.
    file: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if self.file.is_dir() {
            return Err(Error::Directory { path: self.file.clone() });
        }
        write!(out, "{}", sievedb::describe(&self.file)?)?;
        Ok(())
    }
}
