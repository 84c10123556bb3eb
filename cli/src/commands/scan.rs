//! `sieve scan`.

use std::{
    io::{self, Write},
    ops::Bound,
    sync::atomic::Ordering,
};

use sievedb::{Bytes, Db, Keyspace, Range, ReadOptions, text::bytes};

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
    /// Skip damaged blocks, and keys whose newest value is damaged or may be in such a block.
    /// Reports the blocks, their key ranges and sizes, and the number of keys on standard error.
    /// Exits with 1 if any were skipped. Looks up each key, and reads all tables a second time. No
    /// process may have the store open for writing.
    #[arg(long)]
    skip_damaged: bool,
    /// Maximum number of entries to print.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// A key, and its value if the scan reads values.
type Entry = sievedb::Result<(Bytes, Option<Bytes>)>;

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
        let mut reached = None;
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut entries = self.entries(bounds.entries(&keyspace));
        while left > 0
            && let Some(entry) = entries.next()
        {
            let (key, value) = entry.map_err(|error| self.stopped(printed, error))?;
            if interrupted.load(Ordering::Acquire) {
                out.flush()?;
                let done = format!("printed: {}", counted(printed, ["entry", "entries"]));
                return Err(Error::Interrupted { done });
            }
            let value = match self.skip_damaged {
                false => value,
                true => match self.look_up(&present, &key) {
                    // A damaged block or blob file may hide a newer value than the scan found.
                    Err(sievedb::Error::Corrupt { .. }) => {
                        outdated += 1;
                        continue;
                    }
                    // Expired meanwhile.
                    Ok(None) => continue,
                    value => value?,
                },
            };
            left -= 1;
            printed += 1;
            if left == 0 {
                reached = Some(key.clone());
            }
            match value {
                Some(value) if !self.keys_only => {
                    writeln!(
                        out,
                        "{}\t{}",
                        self.notation.write(&key),
                        self.notation.write(&value)
                    )?;
                }
                _ => writeln!(out, "{}", self.notation.write(&key))?,
            }
        }
        if !self.skip_damaged || self.limit == Some(0) {
            return Ok(());
        }
        let mut scanned = bounds.of_keys();
        if let Some(reached) = reached {
            let end = if self.reverse { &mut scanned.0 } else { &mut scanned.1 };
            *end = Bound::Included(reached.to_vec());
        }
        out.flush()?;
        let skipped = report_skipped(&db, &present.name(), &scanned)?;
        match (outdated, skipped) {
            (0, 0) => Ok(()),
            (count, skipped) => Err(Error::Skipped { skipped, outdated: count }),
        }
    }

    /// Returns the entries of `range` in the order of the output. Omits values that need not be
    /// read, or are looked up: a damaged value would end the range.
    fn entries(&self, range: Range) -> Box<dyn Iterator<Item = Entry>> {
        if self.keys_only || self.skip_damaged {
            let keys = range.keys().map(|key| key.map(|key| (key, None)));
            return if self.reverse { Box::new(keys.rev()) } else { Box::new(keys) };
        }
        let entries = range.map(|entry| entry.map(|(key, value)| (key, Some(value))));
        if self.reverse { Box::new(entries.rev()) } else { Box::new(entries) }
    }

    /// Returns the value of a key, empty with `--keys-only`.
    fn look_up(&self, keyspace: &Keyspace, key: &[u8]) -> sievedb::Result<Option<Bytes>> {
        match self.keys_only {
            true => Ok(keyspace.contains_key(key)?.then(Bytes::new)),
            false => keyspace.get(key),
        }
    }

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

/// Reports the damaged blocks of the keyspace `name` with keys in `scanned` on standard error.
/// Returns their number.
fn report_skipped(
    db: &Db,
    name: &str,
    (first, last): &(Bound<Vec<u8>>, Bound<Vec<u8>>),
) -> Result<u64> {
    let (mut blocks, mut lost_bytes) = (0, 0_u64);
    let mut text = String::new();
    for problem in db.verify()?.problems {
        let Some((start, end)) = &problem.keys else { continue };
        let is_here = problem.keyspace.as_deref() == Some(name);
        if is_here && problem.bytes > 0 && !are_apart(end, first) && !are_apart(last, start) {
            blocks += 1;
            lost_bytes = lost_bytes.saturating_add(problem.bytes);
            text += &format!("skipped: {problem}\n");
        }
    }
    if blocks > 0 {
        let places = counted(blocks, ["damaged block", "damaged blocks"]);
        text += &format!("skipped: {places}, {} in total\n", bytes(lost_bytes));
        // If standard error is closed, the exit code still reports the blocks.
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(blocks)
}

/// Returns `true` if no key is within both `..end` and `start..`.
fn are_apart(end: &Bound<impl AsRef<[u8]>>, start: &Bound<impl AsRef<[u8]>>) -> bool {
    use Bound::{Excluded, Included, Unbounded};
    match (end.as_ref().map(AsRef::as_ref), start.as_ref().map(AsRef::as_ref)) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(end), Included(start)) => end < start,
        (Included(end) | Excluded(end), Included(start) | Excluded(start)) => end <= start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_only_touch_are_apart() {
        let [included, excluded]: [fn(_) -> Bound<&'static str>; 2] =
            [Bound::Included, Bound::Excluded];
        for (end, start, want) in [
            (included("b"), included("b"), false),
            (included("b"), excluded("b"), true),
            (excluded("b"), included("b"), true),
            (excluded("b"), excluded("b"), true),
            (included("a"), included("b"), true),
            (excluded("c"), excluded("b"), false),
            (Bound::Unbounded, excluded("b"), false),
            (excluded(""), Bound::Unbounded, false),
        ] {
            assert_eq!(are_apart(&end, &start), want, "{end:?}, {start:?}");
        }
    }
}
