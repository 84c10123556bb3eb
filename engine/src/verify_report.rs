//! Report of a verification.

use std::{fmt, ops::Bound, path::PathBuf};

use bytes::Bytes;
use sievedb_format::{Corruption, annotation::printable};

use crate::{
    Error, QuarantinedTable, text,
    text::{bytes, counted},
};

/// Report of [`Db::verify`](crate::Db::verify).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// All violations found, in the order in which they were found.
    pub problems: Vec<VerifyProblem>,
    /// `true` if the manifest, or `CURRENT`, which names it, is missing or unreadable: nothing else
    /// was verified. [`Options::repair`](crate::Options::repair) works without them. Always `false`
    /// for an open store.
    pub without_manifest: bool,
    /// Tables verified.
    pub tables: u64,
    /// Length of the table files, in bytes.
    pub table_bytes: u64,
    /// Entries read, old versions and tombstones included.
    pub entries: u64,
    /// Filters verified.
    pub filters: u64,
    /// Probes of filters: each filter is probed with every key of its table.
    pub filter_probes: u64,
    /// Batches in the log.
    pub log_batches: u64,
    /// Damaged filters in tables that were replaced by filters in files of their own. Not a
    /// problem, since they are never read; compaction of the table removes them.
    pub unused_filters_damaged: u64,
    /// Ends of the manifest and of the log that are no records. Not a problem if a crash
    /// interrupted the last write, which was never acknowledged. But damage to the last record
    /// looks the same, unless a later mark vouches for it. Only for a store that is not open;
    /// opening truncates them.
    pub torn_tails: Vec<TornTail>,
    /// Tables still quarantined after this verification; empty if the store was not open. Their
    /// damage is among the problems too.
    pub quarantined: Vec<QuarantinedTable>,
}

/// The end of a file that is no record.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TornTail {
    /// The manifest, or a segment of the log.
    pub path: PathBuf,
    /// End of the last good record, in bytes.
    pub offset: u64,
    /// Bytes after it. In the log, includes later segments, but not space reserved and never
    /// written.
    pub bytes: u64,
    /// Reason why they are no record.
    pub message: String,
}

/// A violation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VerifyProblem {
    /// Its kind.
    pub kind: VerifyProblemKind,
    /// The file.
    pub path: PathBuf,
    /// Approximate offset in the file, in bytes; 0 if it concerns the whole file.
    pub offset: u64,
    /// Keyspace of the table or filter concerned.
    pub keyspace: Option<String>,
    /// Keys concerned: those that the damaged block may hold according to the index, or those of
    /// the whole table if it is unreadable. Versions of them in other tables can still be read.
    /// `None` if no entries are concerned.
    pub keys: Option<(Bound<Bytes>, Bound<Bytes>)>,
    /// Bytes of unreadable data blocks and index partitions; 0 if no blocks are concerned.
    pub bytes: u64,
    /// The field, and its problem.
    pub message: String,
}

/// Kind of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerifyProblemKind {
    /// A file cannot be read, or not by this release or build. Data may be intact.
    Unreadable,
    /// A file is missing, or its bytes break their format or contradict the place that names them.
    /// Its data is lost, unless it is a filter.
    Damaged,
    /// A filter is missing, damaged, of an unknown kind, or made with another hash. No data is
    /// affected: lookups read blocks instead. A store that is open for writing rebuilds the filter
    /// in the background; [`Db::wait_for_background`](crate::Db::wait_for_background) waits for
    /// that.
    FilterUnusable,
    /// A valid filter rules out keys that its table holds: lookups do not find them.
    FilterWrong,
}

/// Progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Bytes verified. Each table counts twice: as a file, and block by block.
    pub bytes_done: u64,
    /// Bytes to verify in all.
    pub bytes_all: u64,
    /// Problems found so far.
    pub problems: u64,
}

impl VerifyReport {
    /// Returns `true` if no violation was found.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    pub(crate) fn torn_tail(&mut self, path: PathBuf, offset: u64, bytes: u64, why: &Corruption) {
        self.torn_tails.push(TornTail { path, offset, bytes, message: why.to_string() });
    }

    pub(crate) fn error(&mut self, error: &Error) {
        self.error_of_keys(error, None);
    }

    /// Adds an error that concerns these keys.
    pub(crate) fn error_of_keys(
        &mut self,
        error: &Error,
        keys: Option<(Bound<Bytes>, Bound<Bytes>)>,
    ) {
        let (kind, path, offset, message) = match error {
            Error::Corrupt { path, offset, source: Corruption::Unsupported { what, value } } => {
                let message = format!("written by a newer release: needs {what} {value}");
                (VerifyProblemKind::Unreadable, path.clone(), *offset, message)
            }
            Error::Corrupt { path, offset, source } => {
                (VerifyProblemKind::Damaged, path.clone(), *offset, source.to_string())
            }
            Error::Io { op, path, source } => {
                (VerifyProblemKind::Unreadable, path.clone(), 0, format!("cannot {op}: {source}"))
            }
            Error::NeedsFeature { path, .. } => {
                (VerifyProblemKind::Unreadable, path.clone(), 0, error.to_string())
            }
            other => (VerifyProblemKind::Unreadable, PathBuf::new(), 0, other.to_string()),
        };
        let keyspace = None;
        self.problems.push(VerifyProblem { kind, path, offset, keyspace, keys, bytes: 0, message });
    }

    /// Sets the bytes of the last problem.
    pub(crate) fn lost_bytes(&mut self, bytes: u64) {
        if let Some(last) = self.problems.last_mut() {
            last.bytes = bytes;
        }
    }
}

impl fmt::Display for VerifyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, keyspace, keys, bytes, message, .. } = self;
        write!(f, "{}", path.display())?;
        if *offset > 0 {
            write!(f, " near byte {offset}")?;
        }
        write!(f, ": {message}")?;
        if let Some(keyspace) = keyspace {
            write!(f, "; keyspace {keyspace:?}")?;
        }
        if let Some((start, end)) = keys {
            write!(f, ", keys {}", KeyRange(start, end))?;
        }
        match bytes {
            0 => Ok(()),
            bytes => write!(f, ", blocks of {}", text::bytes(*bytes)),
        }
    }
}

struct KeyRange<'a>(&'a Bound<Bytes>, &'a Bound<Bytes>);

impl fmt::Display for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(start, end) = self;
        match start {
            Bound::Included(key) => write!(f, "from {}", printable(key))?,
            Bound::Excluded(key) => write!(f, "after {}", printable(key))?,
            Bound::Unbounded => write!(f, "from the first")?,
        }
        match end {
            Bound::Included(key) => write!(f, " to {}", printable(key)),
            Bound::Excluded(key) => write!(f, " to before {}", printable(key)),
            Bound::Unbounded => write!(f, " to the last"),
        }
    }
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, bytes, message } = self;
        write!(
            f,
            "note: {} ends at byte {offset}, and {} after it are no record ({message}): a write that a \
             crash interrupted, or damage to the last record. Opening the store truncates them",
            path.display(),
            counted(*bytes, ["byte", "bytes"]),
        )
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{problem}")?;
        }
        for end in &self.torn_tails {
            writeln!(f, "{end}")?;
        }
        for table in &self.quarantined {
            writeln!(f, "{table}")?;
        }
        if self.without_manifest {
            return write!(
                f,
                "tables and log were not verified: they cannot be without the manifest"
            );
        }
        write!(
            f,
            "{} of {} with {}, {} probed for {}, {} in the log: {}",
            counted(self.tables, ["table", "tables"]),
            bytes(self.table_bytes),
            counted(self.entries, ["entry", "entries"]),
            counted(self.filters, ["filter", "filters"]),
            counted(self.filter_probes, ["key", "keys"]),
            counted(self.log_batches, ["batch", "batches"]),
            counted(self.problems.len() as u64, ["problem", "problems"])
        )?;
        if self.unused_filters_damaged > 0 {
            let unused = self.unused_filters_damaged;
            let unused = counted(unused, ["damaged filter has", "damaged filters have"]);
            write!(f, "\n{unused} been replaced, and what was damaged is never read")?;
        }
        Ok(())
    }
}
