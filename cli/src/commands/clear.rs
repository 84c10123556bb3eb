//! `sieve clear`.

use super::{Access, KeyspaceArgs};
use crate::error::Result;

/// Removes all keys of a keyspace, durably, at a cost that does not depend on their number. The
/// keyspace keeps its options.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let (_db, keyspace) = self.keyspace.open(Access::Write)?;
        Ok(keyspace.clear()?)
    }
}
