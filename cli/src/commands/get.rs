//! `sieve get`.

use std::io::Write;

use super::{Access, KeyArgs};
use crate::{
    error::{Error, Result},
    time::Point,
};

/// Prints the value of a key.
///
/// Prints nothing and exits with 1 if the key is absent.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
    /// Point in time: a sequence number, or `@` and a Unix time in seconds. Requires a keyspace
    /// with a history.
    #[arg(long, value_name = "POINT")]
    at: Option<Point>,
    /// Print the unescaped bytes of the value, without a newline.
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (_db, keyspace, key) = self.key.open(Access::Beside)?;
        let value = match self.at {
            Some(Point(point)) => keyspace.snapshot_at(point)?.get(key)?,
            None => keyspace.get(key)?,
        };
        let value = value.ok_or(Error::KeyNotFound)?;
        if self.raw {
            out.write_all(&value)?;
        } else {
            writeln!(out, "{}", self.key.notation.write(&value))?;
        }
        Ok(())
    }
}
