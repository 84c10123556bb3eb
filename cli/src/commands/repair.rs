//! `sieve repair`.

use std::{io::Write, ops::Bound, path::PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};
use sievedb::{OlderValues, RepairReport, VerifyProblem};

use super::{check_content, options};
use crate::{
    error::{Error, Result},
    interrupt,
    text::Notation,
};

/// Copies the readable data of a damaged store into a new store, and lists all losses.
///
/// Lists each loss with its file, its keyspace and its range of keys, as far as they are known.
///
/// Omits keys whose newest value may be lost, and prints their number. `--keep-older` keeps them
/// with the newest readable value.
///
/// Exits with 0 if nothing is lost, and with 1 if data is lost. Exits with 2 if no new store was
/// written: invalid arguments, or a file that cannot be read or written.
///
/// Also works if the store cannot be opened. Without a manifest, it finds the keyspaces in the
/// tables and the log. Never changes the damaged store, which must not be open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the damaged store.
    store: PathBuf,
    /// Directory of the new store, missing or empty. Neither store may be inside the other.
    #[arg(long, value_name = "NEW")]
    into: PathBuf,
    #[command(flatten)]
    notation: Notation,
    /// Keep keys whose newest value may be lost, with the newest readable value.
    #[arg(long)]
    keep_older: bool,
    /// Print the report as one object of JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let older = if self.keep_older { OlderValues::Keep } else { OlderValues::LeaveOut };
        check_content(&self.into)?;
        let new = self.into.display().to_string();
        interrupt::exit_with(move || {
            format!(
                "no complete store was written; delete {new} if this command created it, then \
                 repair again"
            )
        });
        let report = options().repair(&self.store, &self.into, older)?;
        let written = match self.json {
            true => writeln!(out, "{}", self.json_of(&report)),
            false => writeln!(out, "{report}"),
        };
        match report.lost.len() {
            0 => Ok(written?),
            count => Err(Error::Lost { count }),
        }
    }

    fn json_of(&self, report: &RepairReport) -> Value {
        let problems = |problems: &[VerifyProblem]| -> Value {
            problems.iter().map(|problem| self.json_of_problem(problem)).collect()
        };
        json!({
            "lost": problems(&report.lost),
            "replaced": problems(&report.replaced),
            "older_keys": report.older,
            "tables": report.tables,
            "tables_rescanned": report.tables_rescanned,
            "log_batches": report.log_batches,
            "is_rebuilt": report.is_rebuilt,
            "tables_left_out": report.tables_left_out,
            "keyspaces_unnamed": report.keyspaces_unnamed,
            "logs_cut": report.logs_cut,
            "tables_unknown": report.tables_unknown,
        })
    }

    /// Converts a loss to JSON. `keys` is null if the keys are unknown or not affected. A null
    /// bound is unbounded.
    fn json_of_problem(&self, problem: &VerifyProblem) -> Value {
        let bound = |bound: &Bound<Bytes>| match bound {
            Bound::Included(key) => json!({"key": self.notation.write(key), "inclusive": true}),
            Bound::Excluded(key) => json!({"key": self.notation.write(key), "inclusive": false}),
            Bound::Unbounded => Value::Null,
        };
        let keys = |(start, end): &(_, _)| json!({"start": bound(start), "end": bound(end)});
        json!({
            "file": problem.path.display().to_string(),
            "offset": problem.offset,
            "keyspace": problem.keyspace,
            "keys": problem.keys.as_ref().map(keys),
            "block_bytes": problem.bytes,
            "message": problem.message,
        })
    }
}
