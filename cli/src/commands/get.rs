//! `sieve get`.

use std::io::Write;

use super::{Access, KeyspaceArgs};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Prints the value of a key.
///
/// Prints nothing and exits with 1 if the key is absent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to look up.
    key: String,
    /// Print the unescaped bytes of the value, without a newline.
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let (_db, keyspace) = self.keyspace.open(Access::Read)?;
        let value = keyspace.get(key)?.ok_or(Error::KeyNotFound)?;
        if self.raw {
            out.write_all(&value)?;
        } else {
            writeln!(out, "{}", self.notation.write(&value))?;
        }
        Ok(())
    }
}
