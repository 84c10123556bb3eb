//! `sieve keyspaces`.

use std::{io::Write, path::PathBuf};

use super::{Access, open_store};
use crate::{error::Result, text::escape};

/// Prints the names of the keyspaces in order, one per line, with the escapes of keys.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Print two more columns, separated by tabs: the number of keys, which counts overwritten keys
    /// twice, and their bytes on disk and in memtables. Both are estimates.
    #[arg(long)]
    sizes: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let db = open_store(&self.store, Access::Beside)?;
        for name in db.keyspaces()? {
            write!(out, "{}", escape(name.as_bytes()))?;
            if self.sizes {
                let keyspace = db.open_keyspace(&name)?;
                let bytes = keyspace.approximate_bytes::<&[u8]>(..)?;
                write!(out, "\t{}\t{bytes}", keyspace.approximate_len()?)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
