//! `sieve rm`.

use sievedb::Durability;

use super::{Access, KeyspaceArgs};
use crate::{error::Result, text::Notation};

/// Removes a key, durably. Succeeds if the key is absent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to remove.
    key: String,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let (db, keyspace) = self.keyspace.open(Access::Write)?;
        keyspace.remove(key)?;
        Ok(db.persist(Durability::Disk)?)
    }
}
