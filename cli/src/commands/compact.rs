//! `sieve compact`.

use std::path::PathBuf;

use super::{Purpose, open_store};
use crate::error::Result;

/// Merges the tables of each keyspace into one sorted run, without what was replaced or removed.
///
/// Reads and writes everything, but for keyspaces that are one already; the old tables stay until the new ones are
/// there. To look for damage is what `sieve verify` does.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the store.
    store: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        Ok(open_store(&self.store, Purpose::Write)?.compact()?)
    }
}
