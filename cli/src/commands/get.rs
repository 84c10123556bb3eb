//! `sieve get`.

use std::io::Write;

use super::{KeyspaceArgs, Purpose};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Prints the value of a key. Prints nothing and exits with 1 if the key is absent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to look up.
    key: String,
    /// Print the bytes of the value as they are, without an end of line.
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let (_db, keyspace) = self.keyspace.open(Purpose::Read)?;
        let value = keyspace.get(key)?.ok_or(Error::KeyNotFound)?;
        if self.raw {
            out.write_all(&value)?;
        } else {
            writeln!(out, "{}", self.notation.write(&value))?;
        }
        Ok(())
    }
}
