//! `sieve put`.

use std::io::{self, Read as _};

use sievedb::{Durability, VALUE_BYTES_MAX};

use super::{WriteArgs, with_room};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// What stands for a value that comes on standard input.
const STANDARD_INPUT: &str = "-";

/// Stores a value under a key, durably. Creates the store if it does not exist.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: WriteArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to store under.
    key: String,
    /// Value to store; `-` for all that comes on standard input, byte by byte. `\x2d` stands for a
    /// dash.
    value: String,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let value = match self.value.as_str() {
            STANDARD_INPUT => read_all()?,
            text => self.notation.read(text)?,
        };
        let (db, keyspace) = self.keyspace.open_or_create()?;
        with_room(&db, || keyspace.insert(&key, &value))?;
        Ok(db.persist(Durability::Disk)?)
    }
}

/// A byte more than a value may have says enough of one that is too long.
fn read_all() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    io::stdin().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value).map_err(Error::Input)?;
    Ok(value)
}
