//! `sieve explain`.

use std::io::Write;

use sievedb::explain::ExplainedAnswer;

use super::{KeyspaceArgs, Purpose};
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Prints the walk of a lookup: which memtables and tables may have the key, what their filters
/// say, which blocks are read, and what is found.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to look up.
    key: String,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let (_db, keyspace) = self.keyspace.open(Purpose::Read)?;
        let explanation = keyspace.explain(key)?;
        writeln!(out, "{explanation}")?;
        match explanation.answer {
            ExplainedAnswer::Unknown => Err(Error::Unknown),
            _ => Ok(()),
        }
    }
}
