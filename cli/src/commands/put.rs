//! `sieve put`.

use sievedb::Durability;

use super::KeyspaceArgs;
use crate::{error::Result, text::Notation};

/// Stores a value under a key, durably; makes the store and the keyspace if there are none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to store under.
    key: String,
    /// Value to store.
    value: String,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let (key, value) = (self.notation.read(&self.key)?, self.notation.read(&self.value)?);
        let (db, keyspace) = self.keyspace.open_or_create()?;
        keyspace.insert(key, value)?;
        Ok(db.persist(Durability::Disk)?)
    }
}
