//! `sieve rename`.

use std::path::PathBuf;

use super::{Access, open_store};
use crate::{
    error::{Error, Result},
    text::read_name,
};

/// Renames a keyspace, durably. The keyspace "default" cannot be renamed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the store.
    store: PathBuf,
    /// Name of the keyspace, as `sieve keyspaces` prints it.
    #[arg(value_parser = read_name)]
    keyspace: String,
    /// New name, which no keyspace has.
    #[arg(value_parser = read_name)]
    new: String,
}

impl Args {
    pub(crate) fn run(self) -> Result<()> {
        let db = open_store(&self.store, Access::Write)?;
        match db.rename_keyspace(&self.keyspace, &self.new) {
            Err(sievedb::Error::NoKeyspace { name }) => {
                Err(Error::NoKeyspace { store: self.store, name, creates: false })
            }
            renamed => Ok(renamed?),
        }
    }
}
