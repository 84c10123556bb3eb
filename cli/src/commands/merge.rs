//! `sieve merge`.

use sievedb::Durability;

use super::{Access, KeyArgs, with_room};
use crate::error::Result;

/// Adds a merge operand to the value of a key, durably, by the merge operator of the keyspace.
///
/// A counter takes 8 bytes, big-endian: `'\x00\x00\x00\x00\x00\x00\x00\x01'` adds 1. With `--hex`,
/// the key is in hexadecimal digits, too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// Operand to add.
    operand: String,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let operand = self.key.notation.read(&self.operand)?;
        let (db, keyspace, key) = self.key.open(Access::Write)?;
        with_room(&db, || keyspace.merge(&key, &operand))?;
        Ok(db.persist(Durability::Disk)?)
    }
}
