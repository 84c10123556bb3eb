//! `sieve scan`.

use std::{io::Write, ops::Bound};

use sievedb::{Keyspace, ReadOptions};

use super::{KeyspaceArgs, Purpose};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Prints keys and values in the order of the keys, one entry a line, with a tab between.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// The first key.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// The key to stop before.
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys that begin so.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Begin with the last key.
    #[arg(long)]
    reverse: bool,
    /// Print no values.
    #[arg(long)]
    keys_only: bool,
    /// Pass over damaged blocks of tables, to save what can be read; ends with 1 if keys are left out of which
    /// only older values can be read. `sieve verify` names what is lost.
    #[arg(long)]
    skip_damaged: bool,
    /// Stop after so many entries are printed.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let read = |text: &Option<String>| {
            text.as_deref().map(|text| self.notation.read(text)).transpose()
        };
        let (from, to, prefix) = (read(&self.from)?, read(&self.to)?, read(&self.prefix)?);
        let (_db, present) = self.keyspace.open(Purpose::Read)?;
        let keyspace =
            present.with_read_options(ReadOptions::new().skip_damaged(self.skip_damaged));
        let mut outdated = 0;
        let mut entries = match prefix {
            Some(prefix) => keyspace.prefix(prefix),
            None => keyspace.range((
                from.map_or(Bound::Unbounded, Bound::Included),
                to.map_or(Bound::Unbounded, Bound::Excluded),
            )),
        };
        let next = || if self.reverse { entries.next_back() } else { entries.next() };
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut entries = std::iter::from_fn(next);
        while left > 0
            && let Some(entry) = entries.next()
        {
            let (key, value) = entry?;
            if self.skip_damaged && is_outdated(&present, &key)? {
                outdated += 1;
                continue;
            }
            left -= 1;
            if self.keys_only {
                writeln!(out, "{}", self.notation.write(&key))?;
            } else {
                writeln!(out, "{}\t{}", self.notation.write(&key), self.notation.write(&value))?;
            }
        }
        match outdated {
            0 => Ok(()),
            count => Err(Error::Outdated { count }),
        }
    }
}

/// Whether something newer than what a scan past damaged blocks has found may be lost: then a lookup meets it.
fn is_outdated(keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
    match keyspace.contains_key(key) {
        Ok(_) => Ok(false),
        Err(sievedb::Error::Corrupt { .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
