//! `sieve ttl`.

use std::io::Write;

use sievedb::TimeToLive;

use super::{Access, KeyArgs};
use crate::{
    error::{Error, Result},
    time::NONE,
};

/// Prints the seconds until the value of a key expires, or `none` if it does not expire.
///
/// Prints nothing and exits with 1 if the key is absent or its value has expired.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (_db, keyspace, key) = self.key.open(Access::Beside)?;
        match keyspace.ttl(key)?.ok_or(Error::KeyNotFound)? {
            TimeToLive::Unlimited => writeln!(out, "{NONE}")?,
            TimeToLive::Remaining(left) => writeln!(out, "{:.3}", left.as_secs_f64())?,
        }
        Ok(())
    }
}
