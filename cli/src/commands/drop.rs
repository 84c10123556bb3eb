//! `sieve drop`.

use std::path::PathBuf;

use super::{not_opened, options};
use crate::{
    error::{Error, Result},
    text::read_name,
};

/// Drops a keyspace with all its keys, durably. The keyspace "default" cannot be dropped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Name of the keyspace, as `sieve keyspaces` prints it.
    #[arg(value_parser = read_name)]
    keyspace: String,
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        // A worker could start a compaction first, which would fail at damage in the keyspace.
        let options = options().create_if_missing(false).worker_threads(0);
        let db = options.open(&self.store).map_err(|error| not_opened(&self.store, error))?;
        if !db.drop_keyspace(&self.keyspace)? {
            let (store, name) = (self.store, self.keyspace);
            return Err(Error::NoKeyspace { store, name, creates: false });
        }
        // The drop is durable in the log; the close reports later failures.
        db.close().map_err(|error| {
            let source = sievedb::Error::from(error);
            Error::AfterDrop { name: self.keyspace, source }
        })
    }
}
