//! `sieve rm`.

use sievedb::Durability;

use super::{Access, KeyArgs};
use crate::error::Result;

/// Removes a key, or a range of keys that begins at KEY, at the cost of one write, durably.
/// Succeeds if a key is absent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// Removes all keys from KEY up to this one, exclusive.
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    to: Option<String>,
    /// Removes all keys that begin with KEY.
    #[arg(long)]
    prefix: bool,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let end = self.to.as_ref().map(|end| self.key.notation.read(end)).transpose()?;
        let (db, keyspace, key) = self.key.open(Access::Write)?;
        match end {
            Some(end) => keyspace.remove_range(key..end)?,
            None if self.prefix => keyspace.remove_prefix(key)?,
            None => keyspace.remove(key)?,
        }
        Ok(db.persist(Durability::Disk)?)
    }
}
