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

use crate::{error::Result, text::read_name};

/// File that every store has.
const CURRENT: &str = "CURRENT";

/// What a command is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Nothing in the folder changes, so that neither the right to write nor room on the disk is needed.
    Read,
    Write,
}

/// Which keyspace of which store a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyspaceArgs {
    /// Folder of the store.
    store: PathBuf,
    /// Keyspace to work on, as `sieve keyspaces` prints it.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_KEYSPACE, value_parser = read_name)]
    keyspace: String,
}

impl KeyspaceArgs {
    /// Opens the keyspace of an existing store, which must exist.
    fn open(&self, purpose: Purpose) -> Result<(Db, Keyspace)> {
        let db = open_store(&self.store, purpose)?;
        let keyspace = db.open_keyspace(&self.keyspace)?;
        Ok((db, keyspace))
    }
}

/// Which keyspace of which store a command writes to.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// Create the keyspace if the store has none of that name.
    #[arg(long)]
    create_keyspace: bool,
}

impl WriteArgs {
    /// Opens the keyspace. Creates the store if there is none, and the keyspace only if that was asked for.
    fn open_or_create(&self) -> Result<(Db, Keyspace)> {
        let KeyspaceArgs { store, keyspace: name } = &self.keyspace;
        let is_default = name == DEFAULT_KEYSPACE;
        if !self.create_keyspace && !is_default {
            return self.keyspace.open(Purpose::Write);
        }
        let db = Db::open(store)?;
        let keyspace = db.keyspace(name)?;
        Ok((db, keyspace))
    }
}

/// Opens the store in the folder `path`, which must be there.
fn open_store(path: &Path, purpose: Purpose) -> Result<Db> {
    let options = Options::new().create_if_missing(false);
    Ok(options.read_only(purpose == Purpose::Read).open(path)?)
}

/// Refuses a folder without a store, as [`open_store`] does, for commands that do not open it.
fn check_store(path: &Path) -> Result<()> {
    if path.join(CURRENT).exists() {
        return Ok(());
    }
    Err(sievedb::Error::NoStore { path: path.to_owned() }.into())
}
