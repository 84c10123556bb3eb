//! File names in the directory of a store.
//!
//! | name              | content                                                       |
//! |-------------------|---------------------------------------------------------------|
//! | `000012.log`      | segment 12 of the write-ahead log                             |
//! | `000012.sst`      | table 12                                                      |
//! | `000012.filter`   | filter 12, of a table with another number                     |
//! | `000012.blob`     | blob file 12: values of tables and of the log                 |
//! | `MANIFEST-000012` | manifest 12                                                   |
//! | `CURRENT`         | names the manifest that counts                                |
//! | `CLOSED`          | length of the manifest at a clean close                       |
//! | `LOCK`            | locked by the process that has the store open                 |
//! | `STATS`           | statistics, for other processes                               |
//! | `REPLICA`         | files and backup of a replica                                 |
//! | `REPAIR`          | marks the new store of a repair until it is complete          |
//! | `*.tmp`           | unfinished: to be renamed, or left by a crash                 |
//! | `*.next3`         | log and manifest of refresh 3 of a replica: to be renamed     |
//!
//! Numbers come from one counter and are never reused. They have at least six digits, so that
//! directory listings are in order. Only the spelling that [`FileName`] writes is recognized.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Marks the directory of a replica. Without `CURRENT`, some of its files have not arrived.
pub(crate) const REPLICA: &str = "REPLICA";

/// Marks the new store of a repair until it is complete.
pub(crate) const REPAIR: &str = "REPAIR";

/// Returns the suffix of the names of the files of refresh `generation` of a replica.
pub(crate) fn staged_end(generation: u64) -> String {
    format!(".next{generation}")
}

/// Largest number of a file or keyspace: the counters cannot overflow.
pub(crate) const ID_MAX: u64 = u64::MAX >> 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileName<'a> {
    Log(u64),
    Table(u64),
    /// A filter of a table, in a file of its own.
    Filter(u64),
    /// Values of tables.
    Blobs(u64),
    Manifest(u64),
    Current,
    Closed,
    Lock,
    Stats,
    /// The name without `.tmp`.
    Temporary(&'a str),
}

impl<'a> FileName<'a> {
    /// Parses a file name. Returns `None` for the name of another file.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let id = |digits: &str| digits.parse().ok().filter(|&id| id <= ID_MAX);
        let parsed = match name {
            "CURRENT" => Self::Current,
            "CLOSED" => Self::Closed,
            "LOCK" => Self::Lock,
            "STATS" => Self::Stats,
            _ if name.ends_with(".tmp") => Self::Temporary(name.strip_suffix(".tmp")?),
            _ if name.ends_with(".log") => Self::Log(id(name.strip_suffix(".log")?)?),
            _ if name.ends_with(".sst") => Self::Table(id(name.strip_suffix(".sst")?)?),
            _ if name.ends_with(".filter") => Self::Filter(id(name.strip_suffix(".filter")?)?),
            _ if name.ends_with(".blob") => Self::Blobs(id(name.strip_suffix(".blob")?)?),
            _ => Self::Manifest(id(name.strip_prefix("MANIFEST-")?)?),
        };
        // Another spelling ("+12", "0000012") would name a file that is never opened.
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Parses the last part of `path`.
    pub(crate) fn of_path(path: &'a Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    /// Parses the name of a file of a refresh. Returns the name without its suffix, and the
    /// generation.
    pub(crate) fn parse_staged(name: &'a str) -> Option<(Self, u64)> {
        let (name, generation) = name.rsplit_once(".next")?;
        Self::parse(name).zip(generation.parse().ok())
    }

    pub(crate) const fn id(self) -> Option<u64> {
        match self {
            Self::Log(id)
            | Self::Table(id)
            | Self::Filter(id)
            | Self::Blobs(id)
            | Self::Manifest(id) => Some(id),
            Self::Current | Self::Closed | Self::Lock | Self::Stats | Self::Temporary(_) => None,
        }
    }

    pub(crate) fn path(self, folder: &Path) -> PathBuf {
        folder.join(self.to_string())
    }
}

impl fmt::Display for FileName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(id) => write!(f, "{id:06}.log"),
            Self::Table(id) => write!(f, "{id:06}.sst"),
            Self::Filter(id) => write!(f, "{id:06}.filter"),
            Self::Blobs(id) => write!(f, "{id:06}.blob"),
            Self::Manifest(id) => write!(f, "MANIFEST-{id:06}"),
            Self::Current => write!(f, "CURRENT"),
            Self::Closed => write!(f, "CLOSED"),
            Self::Lock => write!(f, "LOCK"),
            Self::Stats => write!(f, "STATS"),
            Self::Temporary(stem) => write!(f, "{stem}.tmp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return() {
        let cases = [
            (FileName::Log(12), "000012.log"),
            (FileName::Table(1_234_567), "1234567.sst"),
            (FileName::Filter(7), "000007.filter"),
            (FileName::Blobs(8), "000008.blob"),
            (FileName::Manifest(ID_MAX), "MANIFEST-9223372036854775807"),
            (FileName::Current, "CURRENT"),
            (FileName::Closed, "CLOSED"),
            (FileName::Lock, "LOCK"),
            (FileName::Stats, "STATS"),
            (FileName::Temporary("CURRENT"), "CURRENT.tmp"),
        ];
        for (name, text) in cases {
            assert_eq!(name.to_string(), text);
            assert_eq!(FileName::parse(text), Some(name), "{text}");
        }
    }

    #[test]
    fn only_canonical_names_parse() {
        let foreign = [
            "",
            "12.log",
            "9223372036854775808.log",
            "0000012.log",
            "+00012.log",
            "000012.LOG",
            "000012.log ",
            "00001a.sst",
            "-00012.sst",
            "7.filter",
            ".filter",
            ".log",
            "MANIFEST-",
            "MANIFEST-12",
            "manifest-000012",
            "current",
            "LOCK2",
            "18446744073709551616.log",
            "000012",
            "notes.txt",
            "٠٠٠٠١٢.log",
        ];
        for name in foreign {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
