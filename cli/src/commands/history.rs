//! `sieve history`.

use std::io::Write;

use super::{Access, KeyArgs};
use crate::{
    error::{Error, Result},
    time::unix_seconds,
};

/// Prints the versions of a key in a keyspace that keeps a history, the newest first.
///
/// Each line has the sequence number, the Unix time of the write, and the value unless it is a
/// removal. `-` stands for a version that is older than the history, and for an unknown time.
/// Prints nothing and exits with 1 if there is no version.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArgs,
}

const NONE: &str = "-";

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (_db, keyspace, key) = self.key.open(Access::Beside)?;
        let mut versions = keyspace.history(key)?.peekable();
        versions.peek().ok_or(Error::KeyNotFound)?;
        for version in versions {
            let version = version?;
            let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
            let sequence = or_none(version.sequence.map(|sequence| sequence.to_string()));
            let written = or_none(version.written_at.map(unix_seconds));
            write!(out, "{sequence}\t{written}")?;
            match version.value {
                Some(value) => writeln!(out, "\t{}", self.key.notation.write(&value))?,
                None => writeln!(out)?,
            }
        }
        Ok(())
    }
}
