//! Errors of commands.

use std::{borrow::Cow, error, fmt, io, path::PathBuf};

use crate::{messages::store_message, text::counted};

/// A result of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Exit code after Ctrl-C: 128 plus the signal number, as shells report it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// An error of a command.
#[derive(Debug)]
pub(crate) enum Error {
    /// An error of the engine.
    Store(sievedb::Error),
    /// A file of the backup set `set` is damaged.
    InSet { set: PathBuf, source: sievedb::Error },
    /// The store at `store` is damaged and cannot be opened.
    NotOpened { store: PathBuf, source: sievedb::Error },
    /// A scan of the store at `store` reached a damaged block after `printed` entries.
    ScanStopped { store: PathBuf, printed: u64, source: sievedb::Error },
    /// The store at `store` has no keyspace `name`. `creates`: the command has a flag to create it.
    NoKeyspace { store: PathBuf, name: String, creates: bool },
    /// `path` is a directory, not a file of a store.
    Directory { path: PathBuf },
    /// The operating system refused `op` on `path`, which is not a file of a store.
    Io { op: &'static str, path: PathBuf, source: io::Error },
    /// The output could not be written.
    Output(io::Error),
    /// Standard input could not be read.
    Input(io::Error),
    /// The store at `path` has no file STATS.
    NoStatsFile { path: PathBuf },
    /// Line `line` of the key file is not a key.
    #[cfg(feature = "encryption")]
    BadKeyFile { path: PathBuf, line: u64 },
    /// A benchmark must create `path`, and it exists.
    Kept { path: PathBuf },
    /// The keyspace `name` was dropped, and a later write failed.
    AfterDrop { name: String, source: sievedb::Error },
    /// A block that decides the answer cannot be read; the output names it.
    Unknown,
    /// The user interrupted the command after `done`.
    Interrupted { done: String },
    /// The argument `text` is not a key or value.
    BadText { text: String, reason: &'static str },
    /// Line `number` of the input, from 1, is not an entry.
    BadLine { number: u64, reason: Cow<'static, str> },
    /// The store refused the entry of line `number` of the input, from 1.
    RefusedLine { number: u64, source: sievedb::Error },
    /// A scan skipped damaged blocks, and keys with only outdated values left.
    Skipped { skipped: u64, outdated: u64 },
    /// The key is absent. Prints nothing, like `grep`.
    KeyNotFound,
    /// A benchmark needs more keys.
    TooFewKeys { stored: u64, absent: u64, need: u64 },
    /// A benchmark found wrong answers or counters; the report lists them.
    Faults { count: usize },
    /// `verify` found problems; the output lists them.
    Problems { summary: String, advice: String },
    /// `repair` lost data; the output lists it.
    Lost { count: usize },
    /// A database of another engine cannot be read, or an export cannot be written.
    Source(sievedb_migrate::Error),
    /// The keyspace refused the entry `key` of a database.
    RefusedEntry { key: String, keyspace: String, source: Box<sievedb::Error> },
    /// `migrate` failed, and deleted the incomplete store that would have become `store`.
    NotMigrated { store: PathBuf, source: Box<Error> },
    /// A keyspace of the new store differs from its column family.
    CopyDiffers { keyspace: String },
    /// The program `name`, which a command runs, is missing.
    NoProgram { name: &'static str },
    /// The program `name`, which a command runs, takes no root keys.
    #[cfg(feature = "encryption")]
    NotEncrypted { name: &'static str },
}

impl Error {
    /// Returns the exit code; see the crate's documentation.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::KeyNotFound
            | Self::Faults { .. }
            | Self::Problems { .. }
            | Self::Lost { .. }
            | Self::CopyDiffers { .. }
            | Self::Skipped { .. } => 1,
            Self::Interrupted { .. } => EXIT_INTERRUPTED,
            _ => 2,
        }
    }

    /// Returns advice, unless the message contains it.
    pub(crate) fn advice(&self) -> Option<String> {
        let text = match self {
            Self::Store(sievedb::Error::Locked { .. }) => {
                "close it there first; `get`, `scan` without `--skip-damaged`, `export`, \
                 `keyspaces`, `ttl`, `history`, `explain`, `changes`, `dump` and `upgrade` read \
                 beside a writer, and `stats` reads its file STATS"
                    .to_owned()
            }
            Self::Store(sievedb::Error::NoStore { .. }) => {
                "`sieve put` and `sieve import` create a store; with `--keyspace`, add \
                 `--create-keyspace`"
                    .to_owned()
            }
            Self::Store(source) | Self::RefusedLine { source, .. }
                if matches!(source, sievedb::Error::Corrupt { .. }) =>
            {
                "restore a backup, or copy what can be read into a new store with \
                 `sieve repair STORE --into NEW`; `sieve verify STORE` lists all damage"
                    .to_owned()
            }
            Self::RefusedLine { source: sievedb::Error::NoKeyspace { .. }, .. } => {
                "`sieve keyspaces STORE` lists its keyspaces; `--create-keyspace` creates it"
                    .to_owned()
            }
            Self::InSet { set, .. } => format!(
                "`sieve backup verify {}` lists all damage; restore another backup, or create one",
                set.display()
            ),
            Self::NotOpened { store, .. } => {
                let store = store.display();
                format!(
                    "restore a backup, or copy what can be read into a new store with \
                     `sieve repair {store} --into NEW`; `sieve verify {store}` lists all damage"
                )
            }
            Self::ScanStopped { store, .. } => {
                let store = store.display();
                format!(
                    "add `--skip-damaged` to print what can be read, or copy it into a new store with \
                     `sieve repair {store} --into NEW`; `sieve verify {store}` lists all damage"
                )
            }
            Self::NoKeyspace { store, creates, .. } => {
                let create = if *creates { "; `--create-keyspace` creates it" } else { "" };
                format!("`sieve keyspaces {}` lists its keyspaces{create}", store.display())
            }
            Self::Directory { path } => {
                let path = path.display();
                format!(
                    "name a file in it, such as {path}/CURRENT; for the whole store, run \
                     `sieve stats {path}` or `sieve verify {path}`"
                )
            }
            Self::Problems { advice, .. } => advice.clone(),
            Self::NoProgram { .. } => {
                "run `cargo install --path raft/cluster` in the repository of SieveDB".to_owned()
            }
            #[cfg(feature = "encryption")]
            Self::NotEncrypted { .. } => "omit `--key-file`, and unset SIEVE_KEY_FILE".to_owned(),
            _ => return None,
        };
        Some(text)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the cause, which `source()` returns.
        match self {
            Self::Store(error) | Self::InSet { source: error, .. } => {
                f.write_str(&store_message(error))
            }
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
                "the store in {} has no file STATS; set the option stats_file_interval in the \
                 program that has it open, unless the store is encrypted",
                path.display()
            ),
            #[cfg(feature = "encryption")]
            Self::BadKeyFile { path, line } => write!(
                f,
                "line {line} of {} is not a key; write an id, a space and 64 hexadecimal digits",
                path.display()
            ),
            Self::Kept { path } => write!(
                f,
                "{} already exists, perhaps from an earlier run; remove it, or use another \
                 directory",
                path.display()
            ),
            Self::AfterDrop { name, .. } => write!(
                f,
                "the keyspace {name:?} is dropped, but a later write failed; reopen the store to \
                 remove its files"
            ),
            Self::Unknown => write!(
                f,
                "the lookup failed at a block that cannot be read; run `sieve verify` to list all \
                 damage, then copy what can be read with `sieve repair`"
            ),
            Self::Interrupted { done } => write!(f, "interrupted: {done}"),
            Self::BadText { text, reason } => write!(f, "cannot read {text:?}: {reason}"),
            Self::BadLine { number, reason } => {
                write!(
                    f,
                    "line {number} is not an entry: {reason}; all earlier lines are stored, unless \
                     --ingest is set"
                )
            }
            Self::RefusedLine { number, .. } => {
                write!(
                    f,
                    "cannot store line {number}; all earlier lines are stored, unless --ingest is \
                     set"
                )
            }
            Self::Skipped { skipped, outdated } => {
                write!(f, "the output is incomplete: ")?;
                let blocks = counted(*skipped, ["damaged block", "damaged blocks"]);
                let keys = counted(*outdated, ["key", "keys"]);
                let keys = format!("{keys} whose newest value may be lost");
                match (skipped, outdated) {
                    (_, 0) => write!(f, "skipped {blocks}"),
                    (0, _) => write!(f, "skipped {keys}"),
                    _ => write!(f, "skipped {blocks} and {keys}"),
                }
            }
            Self::KeyNotFound => write!(f, "the key is absent"),
            Self::TooFewKeys { stored, absent, need } => {
                write!(
                    f,
                    "too few keys: {stored} to store and {absent} absent; at least {need} of each are needed"
                )
            }
            Self::Problems { summary, .. } => f.write_str(summary),
            Self::Lost { count } => write!(
                f,
                "{} could not be read, listed above; the new store has all other data, but no \
                 key whose newest value may be lost, unless --keep-older is set",
                counted(*count as u64, ["place", "places"])
            ),
            Self::Source(error) => write!(f, "{error}"),
            Self::RefusedEntry { key, keyspace, .. } => {
                write!(f, "cannot store the key {key:?} in the keyspace {keyspace:?}")
            }
            Self::NotMigrated { store, .. } => {
                write!(f, "cannot migrate to {}; the incomplete store was deleted", store.display())
            }
            Self::CopyDiffers { keyspace } => write!(
                f,
                "the keyspace {keyspace:?} differs from its column family; the copy was deleted"
            ),
            Self::NoProgram { name } => write!(f, "{name} is not installed"),
            #[cfg(feature = "encryption")]
            Self::NotEncrypted { name } => write!(f, "{name} does not encrypt its stores"),
            Self::Faults { count: 1 } => write!(f, "a result is wrong"),
            Self::Faults { count } => write!(f, "{count} results are wrong"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) | Self::InSet { source: error, .. } => error.source(),
            Self::Source(error) => error.source(),
            Self::NotMigrated { source, .. } => Some(&**source),
            Self::RefusedEntry { source, .. } => Some(&**source),
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

impl From<sievedb_migrate::Error> for Error {
    fn from(error: sievedb_migrate::Error) -> Self {
        Self::Source(error)
    }
}

impl From<io::Error> for Error {
    /// Converts an error of the output, which commands write with `?`.
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
