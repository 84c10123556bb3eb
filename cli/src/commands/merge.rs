//! `sieve merge`.

use sievedb::Durability;

use super::{Access, KeyspaceArgs, with_room};
use crate::{error::Result, text::Notation};

/// Adds a merge operand to the value of a key, durably, by the merge operator of the keyspace.
///
/// A counter takes 8 bytes, big-endian: `'\x00\x00\x00\x00\x00\x00\x00\x01'` adds 1. With `--hex`,
/// the key is in hexadecimal digits, too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to change.
    key: String,
    /// Operand to add.
    operand: String,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let operand = self.notation.read(&self.operand)?;
        let (db, keyspace) = self.keyspace.open(Access::Write)?;
        with_room(&db, || keyspace.merge(&key, &operand))?;
        Ok(db.persist(Durability::Disk)?)
    }
}
