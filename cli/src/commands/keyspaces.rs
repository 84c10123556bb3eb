//! `sieve keyspaces`.

use std::{io::Write, path::PathBuf};

use super::{Access, open_store};
use crate::{error::Result, text::escape};

/// Prints the names of the keyspaces in order, one a line, with the escapes of keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        for name in open_store(&self.store, Access::Read)?.keyspaces() {
            writeln!(out, "{}", escape(name.as_bytes()))?;
        }
        Ok(())
    }
}
