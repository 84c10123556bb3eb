//! Why a command failed.

use std::{error, fmt, io, path::PathBuf};

use crate::{messages::store_message, text::counted};

/// A result of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Exit code after Ctrl-C: 128 and the number of the signal, as shells report it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The store refused.
    Store(sievedb::Error),
    /// The store at `store` cannot be opened because of damage.
    NotOpened { store: PathBuf, source: sievedb::Error },
    /// A scan of the store at `store` met a damaged block after `printed` entries.
    ScanStopped { store: PathBuf, printed: u64, source: sievedb::Error },
    /// The store at `store` has no keyspace `name`. The command may create one if `creates` is set.
    NoKeyspace { store: PathBuf, name: String, creates: bool },
    /// `path` is a directory, and not a file of a store.
    Directory { path: PathBuf },
    /// The operating system refused `op` on `path`, which is no file of a store.
    Io { op: &'static str, path: PathBuf, source: io::Error },
    /// What the command says could not be written.
    Output(io::Error),
    /// Standard input could not be read.
    Input(io::Error),
    /// The store at `path` writes no statistics for other processes.
    NoStatsFile { path: PathBuf },
    /// The store at `path` was kept by an earlier run of the benchmark, which fills a new one.
    Kept { path: PathBuf },
    /// The keyspace `name` is dropped, and a later write failed.
    AfterDrop { name: String, source: sievedb::Error },
    /// A block that decides the answer cannot be read; the output says which.
    Unknown,
    /// The user interrupted the command after `done`.
    Interrupted { done: String },
    /// `text` of the command line does not stand for a key or value.
    BadText { text: String, reason: &'static str },
    /// The line `number` of the input, from 1, is no entry.
    BadLine { number: u64, reason: &'static str },
    /// The store refused the entry of the line `number` of the input, from 1.
    RefusedLine { number: u64, source: sievedb::Error },
    /// A scan skipped so many damaged blocks, and so many keys of which only older values can be
    /// read.
    Skipped { skipped: u64, outdated: u64 },
    /// The key is not there. Says nothing, as `grep` does.
    KeyNotFound,
    /// A benchmark cannot work with so few keys.
    TooFewKeys { stored: u64, absent: u64, need: u64 },
    /// Answers or counters were wrong; the report names them.
    Faults { count: usize },
    /// `verify` found problems; the output lists them.
    Problems { summary: String, advice: String },
    /// `repair` could not read all; the output lists what.
    Lost { count: usize },
}

impl Error {
    /// What the process ends with: 1 if the answer is no, 2 if there is none.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::KeyNotFound
            | Self::Faults { .. }
            | Self::Problems { .. }
            | Self::Lost { .. }
            | Self::Skipped { .. } => 1,
            Self::Interrupted { .. } => EXIT_INTERRUPTED,
            _ => 2,
        }
    }

    /// What can be done about it, where the message is not enough.
    pub(crate) fn advice(&self) -> Option<String> {
        let text = match self {
            Self::Store(sievedb::Error::Locked { .. }) => {
                "close it there, or wait until it is closed. `get`, `scan`, `explain`, `keyspaces`, \
                 `stats`, `verify` and `repair` only read, and work while other processes read. \
                 `dump` works at any time, and `stats` prints the file STATS of an open store"
                    .to_owned()
            }
            Self::Store(source) | Self::RefusedLine { source, .. }
                if matches!(source, sievedb::Error::Corrupt { .. }) =>
            {
                "`sieve verify STORE` lists all damage, `sieve scan STORE --skip-damaged` prints \
                 what can be read, and `sieve repair STORE NEW` copies it into a new store; or \
                 restore a backup"
                    .to_owned()
            }
            Self::NotOpened { store, .. } => {
                let store = store.display();
                format!(
                    "restore a backup, or copy what can be read into a new store with \
                     `sieve repair {store} NEW`; `sieve verify {store}` lists all damage"
                )
            }
            Self::ScanStopped { store, .. } => {
                let store = store.display();
                format!(
                    "`--skip-damaged` prints what can be read, and `sieve repair {store} NEW` copies \
                     it into a new store; `sieve verify {store}` lists all damage"
                )
            }
            Self::NoKeyspace { store, creates, .. } => {
                let create = if *creates { "; `--create-keyspace` creates it" } else { "" };
                format!("`sieve keyspaces {}` lists its keyspaces{create}", store.display())
            }
            Self::Directory { path } => {
                let path = path.display();
                format!(
                    "name a file in it, such as {path}/CURRENT; `sieve stats {path}` and \
                     `sieve verify {path}` are about a whole store"
                )
            }
            Self::Problems { advice, .. } => advice.clone(),
            _ => return None,
        };
        Some(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `source()` tells the cause; a message that repeats it prints it twice.
        match self {
            Self::Store(error) => f.write_str(&store_message(error)),
            Self::NotOpened { store, .. } => {
                write!(f, "cannot open the store {}: it is damaged", store.display())
            }
            Self::ScanStopped { printed, .. } => write!(
                f,
                "the scan stopped at a damaged block after {}",
                counted(*printed, ["entry", "entries"])
            ),
            Self::NoKeyspace { store, name, .. } => {
                write!(f, "the store {} has no keyspace {name:?}", store.display())
            }
            Self::Directory { path } => write!(f, "{} is a directory", path.display()),
            Self::Io { op, path, .. } => write!(f, "cannot {op} {}", path.display()),
            Self::Output(_) => write!(f, "cannot write the output"),
            Self::Input(_) => write!(f, "cannot read standard input"),
            Self::NoStatsFile { path } => write!(
                f,
                "the store in {} has no file STATS: the program that has it open must set the \
                 option stats_file_interval",
                path.display()
            ),
            Self::Kept { path } => write!(
                f,
                "cannot create {}: something is there, perhaps of an earlier run. Remove it, or \
                 name another directory",
                path.display()
            ),
            Self::AfterDrop { name, .. } => write!(
                f,
                "the keyspace {name:?} is dropped, but a later write failed; open the store again to remove \
                 its files"
            ),
            Self::Unknown => write!(
                f,
                "the lookup failed at a block that cannot be read; run `sieve verify` to list all damage, then \
                 copy what can be read with `sieve repair`"
            ),
            Self::Interrupted { done } => write!(f, "interrupted: {done}"),
            Self::BadText { text, reason } => write!(f, "cannot read {text:?}: {reason}"),
            Self::BadLine { number, reason } => {
                write!(f, "line {number} is no entry: {reason}. The lines before it are stored")
            }
            Self::RefusedLine { number, .. } => {
                write!(f, "cannot store line {number}. The lines before it are stored")
            }
            Self::Skipped { skipped, outdated } => {
                write!(f, "the output is incomplete: ")?;
                let blocks = counted(*skipped, ["damaged block", "damaged blocks"]);
                let keys = counted(*outdated, ["key", "keys"]);
                let keys = format!("{keys} left out of which only older values can be read");
                match (skipped, outdated) {
                    (_, 0) => write!(f, "{blocks} skipped"),
                    (0, _) => write!(f, "{keys}"),
                    _ => write!(f, "{blocks} skipped, and {keys}"),
                }
            }
            Self::KeyNotFound => write!(f, "the key is not there"),
            Self::TooFewKeys { stored, absent, need } => {
                write!(f, "{stored} keys to store and {absent} absent ones: {need} of each needed")
            }
            Self::Problems { summary, .. } => f.write_str(summary),
            Self::Lost { count } => write!(
                f,
                "{} could not be read, listed above; the new store holds the rest",
                counted(*count as u64, ["place", "places"])
            ),
            Self::Faults { count: 1 } => write!(f, "a result is wrong"),
            Self::Faults { count } => write!(f, "{count} results are wrong"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            Self::RefusedLine { source, .. }
            | Self::AfterDrop { source, .. }
            | Self::NotOpened { source, .. }
            | Self::ScanStopped { source, .. } => Some(source),
            Self::Io { source, .. } | Self::Output(source) | Self::Input(source) => Some(source),
            _ => None,
        }
    }
}

impl From<sievedb::Error> for Error {
    fn from(error: sievedb::Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Error {
    /// For the output, which every command writes to with `?`.
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
