//! `sieve put`.

use std::io::{self, Read as _};

use sievedb::{Durability, VALUE_BYTES_MAX};

use super::{WriteArgs, with_room};
use crate::{
    error::{Error, Result},
    text::Notation,
    time::Ttl,
};

/// Argument that reads the value from standard input.
const STANDARD_INPUT: &str = "-";

/// Writes a key with its value, durably.
///
/// Creates the store if it does not exist; with `--keyspace`, only with `--create-keyspace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: WriteArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to write.
    key: String,
    /// Value to write; `-` reads its bytes from standard input. Write `\x2d` for the value `-`.
    value: String,
    /// Time after which the value expires: seconds, or a number with `s`, `m`, `h` or `d`; `none`
    /// for a value that does not expire [default: that of the keyspace].
    #[arg(long)]
    ttl: Option<Ttl>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let value = match self.value.as_str() {
            STANDARD_INPUT => read_all()?,
            text => self.notation.read(text)?,
        };
        let (db, keyspace) = self.keyspace.open_or_create()?;
        with_room(&db, || match self.ttl {
            None => keyspace.insert(&key, &value),
            Some(Ttl(None)) => keyspace.insert_without_ttl(&key, &value),
            Some(Ttl(Some(ttl))) => keyspace.insert_with_ttl(&key, &value, ttl),
        })?;
        Ok(db.persist(Durability::Disk)?)
    }
}

/// Reads up to one byte more than a value may have: enough for the store to refuse it.
fn read_all() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    io::stdin().take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value).map_err(Error::Input)?;
    Ok(value)
}
