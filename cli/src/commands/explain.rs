//! `sieve explain`.

use std::io::Write;

use sievedb::explain::ExplainedAnswer;

use super::{Access, KeyArgs};
use crate::error::{Error, Result};

/// Prints the steps of a lookup: memtables, candidate tables, filter results, block reads, answer.
///
/// Exits with 0 if the key is present or absent, and with 2 if the lookup reads a damaged block.
/// Does not read a value in a blob file, which may be damaged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (_db, keyspace, key) = self.key.open(Access::Beside)?;
        let explanation = keyspace.explain(key)?;
        let written = writeln!(out, "{explanation}");
        match explanation.answer {
            ExplainedAnswer::Unknown => Err(Error::Unknown),
            _ => Ok(written?),
        }
    }
}
