//! `sieve scan`.

use std::{
    io::{self, Write},
    ops::Bound,
    sync::atomic::Ordering,
};

use sievedb::{Bytes, Db, Keyspace, ReadOptions, text::bytes};

use super::{Access, KeyspaceArgs, bounds::BoundsArgs};
use crate::{
    error::{Error, Result},
    interrupt,
    text::{Notation, counted},
};

/// Prints entries in key order, one per line: the key, a tab, the value.
///
/// Exits with 2 at a damaged block, unless `--skip-damaged` is set.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    bounds: BoundsArgs,
    /// Print entries in reverse order.
    #[arg(long)]
    reverse: bool,
    /// Print keys without values.
    #[arg(long)]
    keys_only: bool,
    /// Skip damaged blocks, and keys whose newest value may be in one. Reports the blocks, their
    /// key ranges and sizes, and the number of keys on standard error. Exits with 1 if any were
    /// skipped. Reads all tables a second time. No process may have the store open for writing.
    #[arg(long)]
    skip_damaged: bool,
    /// Maximum number of entries to print.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let bounds = self.bounds.read(self.notation)?;
        // The report requires tables that no writer deletes.
        let access = if self.skip_damaged { Access::Read } else { Access::Beside };
        let (db, present) = self.keyspace.open(access)?;
        let keyspace =
            present.with_read_options(ReadOptions::new().skip_damaged(self.skip_damaged));
        let interrupted = interrupt::flag();
        let (mut outdated, mut printed) = (0, 0);
        let mut entries = bounds.entries(&keyspace);
        let next = || if self.reverse { entries.next_back() } else { entries.next() };
        let mut reached = None;
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut entries = std::iter::from_fn(next);
        while left > 0
            && let Some(entry) = entries.next()
        {
            let (key, value) = entry.map_err(|error| self.stopped(printed, error))?;
            if interrupted.load(Ordering::Acquire) {
                out.flush()?;
                let done = format!("printed: {}", counted(printed, ["entry", "entries"]));
                return Err(Error::Interrupted { done });
            }
            if self.skip_damaged && is_outdated(&present, &key)? {
                outdated += 1;
                continue;
            }
            left -= 1;
            printed += 1;
            if left == 0 {
                reached = Some(key.clone());
            }
            if self.keys_only {
                writeln!(out, "{}", self.notation.write(&key))?;
            } else {
                writeln!(out, "{}\t{}", self.notation.write(&key), self.notation.write(&value))?;
            }
        }
        if !self.skip_damaged {
            return Ok(());
        }
        let mut scanned = match bounds.prefix {
            Some(prefix) => (Some(prefix.clone()), Some(prefix), true),
            None => (bounds.from, bounds.to, false),
        };
        if let Some(reached) = reached {
            match self.reverse {
                true => scanned.0 = Some(reached.to_vec()),
                false => scanned = (scanned.0, Some(reached.to_vec()), false),
            }
        }
        out.flush()?;
        let skipped = report_skipped(&db, &present.name(), &scanned)?;
        match (outdated, skipped) {
            (0, 0) => Ok(()),
            (count, skipped) => Err(Error::Skipped { skipped, outdated: count }),
        }
    }
}

impl Args {
    /// Converts the error that ended the scan after `printed` entries.
    fn stopped(&self, printed: u64, error: sievedb::Error) -> Error {
        match error {
            source @ sievedb::Error::Corrupt { .. } if !self.skip_damaged => {
                Error::ScanStopped { store: self.keyspace.store.clone(), printed, source }
            }
            error => error.into(),
        }
    }
}

/// Reports the damaged blocks of the keyspace `name` within a scan on standard error. Returns their
/// number. `scanned` is the first key of the scan, the last key, and `true` if the last key is a
/// prefix.
fn report_skipped(
    db: &Db,
    name: &str,
    (first, last, is_prefix): &(Option<Vec<u8>>, Option<Vec<u8>>, bool),
) -> Result<u64> {
    let is_before = |end: &Bound<Bytes>| match (end, first) {
        (Bound::Included(end) | Bound::Excluded(end), Some(first)) => end[..] < first[..],
        _ => false,
    };
    let is_behind = |start: &Bound<Bytes>| match (start, last) {
        (Bound::Included(start) | Bound::Excluded(start), Some(last)) => {
            start[..] > last[..] && !(*is_prefix && start.starts_with(last))
        }
        _ => false,
    };
    let (mut blocks, mut lost_bytes) = (0, 0_u64);
    let mut text = String::new();
    for problem in db.verify()?.problems {
        let Some((start, end)) = &problem.keys else { continue };
        let is_here = problem.keyspace.as_deref() == Some(name);
        if is_here && problem.bytes > 0 && !is_before(end) && !is_behind(start) {
            blocks += 1;
            lost_bytes = lost_bytes.saturating_add(problem.bytes);
            text += &format!("skipped: {problem}\n");
        }
    }
    if blocks > 0 {
        let places = counted(blocks, ["damaged block", "damaged blocks"]);
        text += &format!("skipped: {places}, {} in total\n", bytes(lost_bytes));
        io::stderr().write_all(text.as_bytes()).map_err(Error::Output)?;
    }
    Ok(blocks)
}

/// Returns `true` if a damaged block may hide a newer value of `key` than the scan found.
fn is_outdated(keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
    match keyspace.contains_key(key) {
        Ok(_) => Ok(false),
        Err(sievedb::Error::Corrupt { .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
