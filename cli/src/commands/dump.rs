//! `sieve dump`.

use std::{io::Write, ops::ControlFlow, path::PathBuf};

use super::options;
use crate::error::{Error, Result};

/// Prints the bytes of a file of a store with their meaning.
///
/// Prints the readable parts of a damaged file. A damaged log or manifest is printed up to the
/// damage. Takes no lock: another process may have the store open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Table (`.sst`), filter (`.filter`), blob file (`.blob`), log segment (`.log`),
    /// `MANIFEST-...`, `CURRENT` or `CLOSED`.
    file: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        if self.file.is_dir() {
            return Err(Error::Directory { path: self.file.clone() });
        }
        let mut printed = Ok(());
        let described = options().describe_parts(&self.file, |part| {
            printed = write!(out, "{part:24}");
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        printed?;
        Ok(described?)
    }
}
