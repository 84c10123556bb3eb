//! Commands, one per file.

pub(crate) mod backup;
pub(crate) mod bench_misses;
pub(crate) mod bench_open;
pub(crate) mod bench_reads;
mod bounds;
pub(crate) mod changes;
pub(crate) mod checkpoint;
pub(crate) mod clear;
pub(crate) mod cluster;
pub(crate) mod compact;
mod copied;
pub(crate) mod drop;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod keyspaces;
pub(crate) mod merge;
pub(crate) mod migrate;
pub(crate) mod put;
#[cfg(feature = "encryption")]
pub(crate) mod reencrypt;
pub(crate) mod rename;
pub(crate) mod repair;
pub(crate) mod rm;
pub(crate) mod scan;
pub(crate) mod stats;
pub(crate) mod ttl;
pub(crate) mod upgrade;
pub(crate) mod verify;

use std::path::{Path, PathBuf};

use sievedb::{DEFAULT_KEYSPACE, Db, Keyspace, Options};
use sievedb_migrate::store::with_room;

use crate::{
    error::{Error, Result},
    text::{Notation, read_name},
};

/// Name of a file that every store has.
const CURRENT: &str = "CURRENT";

/// Directory that a new file system has.
const LOST_AND_FOUND: &str = "lost+found";

/// Access of a command to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Read-only: needs no write permission and no disk space.
    Read,
    /// Read-only. If a process has the store open for writing, follows that store.
    Beside,
    /// Read-only, without a lock that would prevent a writer from opening the store.
    Follow,
    Write,
}

/// Store and keyspace that a command reads or writes.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceArgs {
    /// Directory of the store.
    store: PathBuf,
    /// Name of the keyspace, as `sieve keyspaces` prints it.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_KEYSPACE, value_parser = read_name)]
    keyspace: String,
}

impl KeyspaceArgs {
    /// Opens the keyspace, which must exist.
    fn open(&self, access: Access) -> Result<(Db, Keyspace)> {
        self.open_as(access, false)
    }

    /// Opens the keyspace. `creates`: the command has the flag `--create-keyspace`.
    fn open_as(&self, access: Access, creates: bool) -> Result<(Db, Keyspace)> {
        let db = open_store(&self.store, access)?;
        let keyspace = find_keyspace(&self.store, &db, &self.keyspace, creates)?;
        Ok((db, keyspace))
    }
}

/// A key that a command reads or writes, with its store and keyspace.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
    /// Key to read or change.
    key: String,
}

impl KeyArgs {
    /// Opens the keyspace, which must exist. Also returns the key.
    fn open(&self, access: Access) -> Result<(Db, Keyspace, Vec<u8>)> {
        let key = self.notation.read(&self.key)?;
        let (db, keyspace) = self.keyspace.open(access)?;
        Ok((db, keyspace, key))
    }
}

/// Opens the keyspace `name` of the store in the directory `store`. `creates`: the command has the
/// flag `--create-keyspace`.
fn find_keyspace(store: &Path, db: &Db, name: &str, creates: bool) -> Result<Keyspace> {
    match db.open_keyspace(name) {
        Ok(keyspace) => Ok(keyspace),
        Err(sievedb::Error::NoKeyspace { name }) => {
            Err(Error::NoKeyspace { store: store.to_owned(), name, creates })
        }
        Err(error) => Err(error.into()),
    }
}

/// Store and keyspace that a command writes to.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Create the keyspace if it does not exist.
    #[arg(long)]
    create_keyspace: bool,
}

impl WriteArgs {
    /// Opens the keyspace. Creates a missing store, and a missing keyspace if the flag is set.
    fn open_or_create(&self) -> Result<(Db, Keyspace)> {
        let KeyspaceArgs { store, keyspace: name } = &self.keyspace;
        let is_default = name == DEFAULT_KEYSPACE;
        if !self.create_keyspace && !is_default {
            return self.keyspace.open_as(Access::Write, true);
        }
        check_content(store)?;
        let db = options().open(store).map_err(|error| not_opened(store, error))?;
        let keyspace = db.keyspace(name)?;
        Ok((db, keyspace))
    }

    /// Returns the directory of the store.
    fn store(&self) -> &Path {
        &self.keyspace.store
    }

    /// Opens another keyspace of the store. Creates it if the flag is set.
    fn named(&self, db: &Db, name: &str) -> sievedb::Result<Keyspace> {
        match self.create_keyspace {
            true => db.keyspace(name),
            false => db.open_keyspace(name),
        }
    }
}

/// Returns the default options, with the keys of the key file.
fn options() -> Options {
    #[cfg(feature = "encryption")]
    return crate::keys::with_keys(Options::new());
    #[cfg(not(feature = "encryption"))]
    Options::new()
}

/// Opens the store in the directory `path`, which must exist.
fn open_store(path: &Path, access: Access) -> Result<Db> {
    let options = options().create_if_missing(false);
    let options = options.read_only(access != Access::Write).follow(access == Access::Follow);
    let opened = match options.clone().open(path) {
        Err(sievedb::Error::Locked { .. }) if access == Access::Beside => {
            options.follow(true).open(path)
        }
        opened => opened,
    };
    opened.map_err(|error| not_opened(path, error))
}

/// Adds the path of the store to an error about damage.
fn not_opened(path: &Path, error: sievedb::Error) -> Error {
    match error {
        source @ sievedb::Error::Corrupt { .. } => {
            Error::NotOpened { store: path.to_owned(), source }
        }
        error => error.into(),
    }
}

/// Refuses a new store among directories and names that are not UTF-8, which the engine ignores,
/// also when it looks for an empty directory.
fn check_content(path: &Path) -> Result<()> {
    if path.join(CURRENT).exists() {
        return Ok(());
    }
    // If it cannot be listed, the open reports the error.
    for entry in path.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir()) && name != LOST_AND_FOUND;
        if is_dir || name.to_str().is_none() {
            let name = name.to_string_lossy().into_owned();
            return Err(sievedb::Error::ForeignDirectory { path: path.to_owned(), name }.into());
        }
    }
    Ok(())
}

/// Returns an error if the directory has no store, for commands that do not open it.
fn check_store(path: &Path) -> Result<()> {
    if path.join(CURRENT).exists() {
        return Ok(());
    }
    Err(sievedb::Error::NoStore { path: path.to_owned() }.into())
}
