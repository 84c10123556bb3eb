//! One command a file.

pub(crate) mod bench_misses;
pub(crate) mod bench_open;
pub(crate) mod bench_reads;
pub(crate) mod compact;
pub(crate) mod drop;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod keyspaces;
pub(crate) mod put;
pub(crate) mod repair;
pub(crate) mod rm;
pub(crate) mod scan;
pub(crate) mod stats;
pub(crate) mod verify;

use std::path::{Path, PathBuf};

use sievedb::{DEFAULT_KEYSPACE, Db, Keyspace, Options};

use crate::{
    error::{Error, Result},
    text::read_name,
};

/// File that every store has.
const CURRENT: &str = "CURRENT";

/// What a command is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Nothing in the directory changes, so that neither the right to write nor room on the disk is
    /// needed.
    Read,
    Write,
}

/// Which keyspace of which store a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceArgs {
    /// Directory of the store.
    store: PathBuf,
    /// Keyspace to work on, as `sieve keyspaces` prints it.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_KEYSPACE, value_parser = read_name)]
    keyspace: String,
}

impl KeyspaceArgs {
    /// Opens the keyspace of an existing store, which must exist.
    fn open(&self, purpose: Purpose) -> Result<(Db, Keyspace)> {
        self.open_as(purpose, false)
    }

    /// Opens the keyspace. `creates` is set if the command has a flag that creates one.
    fn open_as(&self, purpose: Purpose, creates: bool) -> Result<(Db, Keyspace)> {
        let db = open_store(&self.store, purpose)?;
        match db.open_keyspace(&self.keyspace) {
            Ok(keyspace) => Ok((db, keyspace)),
            Err(sievedb::Error::NoKeyspace { name }) => {
                Err(Error::NoKeyspace { store: self.store.clone(), name, creates })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Which keyspace of which store a command writes to.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Create the keyspace if the store has none of that name. Without this flag it must exist.
    #[arg(long)]
    create_keyspace: bool,
}

impl WriteArgs {
    /// Opens the keyspace. Creates the store if there is none, and the keyspace only if that was
    /// asked for.
    fn open_or_create(&self) -> Result<(Db, Keyspace)> {
        let KeyspaceArgs { store, keyspace: name } = &self.keyspace;
        let is_default = name == DEFAULT_KEYSPACE;
        if !self.create_keyspace && !is_default {
            return self.keyspace.open_as(Purpose::Write, true);
        }
        let db = Db::open(store).map_err(|error| not_opened(store, error))?;
        let keyspace = db.keyspace(name)?;
        Ok((db, keyspace))
    }
}

/// Opens the store in the directory `path`, which must exist.
fn open_store(path: &Path, purpose: Purpose) -> Result<Db> {
    let options = Options::new().create_if_missing(false);
    let options = options.read_only(purpose == Purpose::Read);
    options.open(path).map_err(|error| not_opened(path, error))
}

/// Adds the store at `path`, which was to be opened, to an error about damage.
fn not_opened(path: &Path, error: sievedb::Error) -> Error {
    match error {
        source @ sievedb::Error::Corrupt { .. } => {
            Error::NotOpened { store: path.to_owned(), source }
        }
        error => error.into(),
    }
}

/// Writes an entry with `write`, with a larger memory budget if the entry needs one.
fn with_room<T>(db: &Db, write: impl Fn() -> sievedb::Result<T>) -> sievedb::Result<T> {
    match write() {
        Err(sievedb::Error::WriteTooLarge { bytes, .. }) => {
            // Memtables have a quarter of it, of which three quarters at most are for one write.
            db.set_memory_budget(bytes.saturating_mul(8))?;
            write()
        }
        written => written,
    }
}

/// Refuses a directory without a store, as [`open_store`] does, for commands that do not open it.
fn check_store(path: &Path) -> Result<()> {
    if path.join(CURRENT).exists() {
        return Ok(());
    }
    Err(sievedb::Error::NoStore { path: path.to_owned() }.into())
}
