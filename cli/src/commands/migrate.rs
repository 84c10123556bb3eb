//! `sieve migrate`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use indicatif::ProgressBar;
use sievedb::{Db, Durability};
use sievedb_migrate::{
    Digest, Options, RocksDb,
    export::OutputDirectory,
    store::{Copied, KeyspaceWriter},
};

use super::{Access, CURRENT, copied::table, not_opened, open_store, options};
use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    text::escape,
};

/// Copies a database of another engine into a new store, and verifies the copy.
///
/// Each column family becomes a keyspace of the same name, with the newest value of each key. Merge
/// operands are folded. Omits prepared transactions that were not committed: commit them with
/// RocksDB first. Does not change the database, which no process may have open.
///
/// Then reads the new store, and compares the number of entries and a digest of all keys and
/// values. Prints both for each keyspace. Exits with 1 if one differs.
///
/// The new store is `NAME.partial` until it is complete and verified. If the command fails, it
/// deletes the incomplete store. After an interruption, delete `NAME.partial` before you migrate
/// again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the database.
    source: PathBuf,
    /// Directory of the new store, missing or empty.
    dest: PathBuf,
    /// Engine that wrote the database.
    #[arg(long, value_name = "ENGINE", default_value = "rocksdb")]
    from: Engine,
    /// Directory of the write-ahead logs, if it is not the directory of the database.
    #[arg(long, value_name = "PATH")]
    wal_dir: Option<PathBuf>,
}

/// An engine whose databases can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// RocksDB 4.6 or later.
    Rocksdb,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let database = match self.from {
            Engine::Rocksdb => self.open_rocksdb()?,
        };
        if self.dest.join(CURRENT).exists() {
            return Err(sievedb::Error::StoreExists { path: self.dest.clone() }.into());
        }
        let output = OutputDirectory::create(&self.dest)?;
        let partial = output.partial().to_owned();
        let name = partial.display().to_string();
        interrupt::exit_with(move || {
            format!("{name} is incomplete; delete it, then migrate again")
        });
        let store = options().open(&partial).map_err(|error| not_opened(&partial, error))?;
        let copied = copy_all(&database, &store);
        drop(store);
        let (copied, differing) = copied
            .and_then(|copied| verify(&partial, &copied).map(|differing| (copied, differing)))
            .map_err(|error| Error::NotMigrated {
                store: self.dest.clone(),
                source: Box::new(error),
            })?;
        if differing.is_none() {
            output.finish()?;
        }
        let written = writeln!(out, "{}", table(&copied));
        match differing {
            None => Ok(written?),
            Some(keyspace) => Err(Error::CopyDiffers { keyspace }),
        }
    }

    fn open_rocksdb(&self) -> Result<RocksDb> {
        let options = match &self.wal_dir {
            Some(path) => Options::new().wal_dir(path),
            None => Options::new(),
        };
        Ok(options.open(&self.source)?)
    }
}

/// Reads the new store `path`. Returns the name of a keyspace that differs from its column family.
fn verify(path: &Path, copied: &[Copied]) -> Result<Option<String>> {
    let store = open_store(path, Access::Read)?;
    for family in copied {
        let progress = progress::counter("entries", &format!("verifying {:?}", family.name));
        let mut found = Digest::default();
        for entry in store.open_keyspace(&family.name)?.range::<&[u8]>(..) {
            let (key, value) = entry?;
            found.add(&key, &value);
            progress.inc(1);
        }
        progress.finish_and_clear();
        if found != family.digest {
            return Ok(Some(family.name.clone()));
        }
    }
    Ok(None)
}

/// Copies all column families, and makes them durable.
fn copy_all(database: &RocksDb, store: &Db) -> Result<Vec<Copied>> {
    let names = database.column_families();
    let copied = names.map(|name| copy(database, store, name)).collect::<Result<_>>()?;
    store.flush()?;
    store.persist(Durability::Disk)?;
    Ok(copied)
}

/// Copies the column family `name` into a keyspace.
fn copy(database: &RocksDb, store: &Db, name: &str) -> Result<Copied> {
    let mut keyspace = KeyspaceWriter::create(store, name)?;
    let progress: ProgressBar = progress::counter("entries", &format!("copying {name:?}"));
    for entry in database.entries(name)? {
        let (key, value) = entry?;
        keyspace.add(&key, &value).map_err(|source| Error::RefusedEntry {
            key: escape(&key),
            keyspace: name.to_owned(),
            source: Box::new(source),
        })?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(keyspace.finish()?)
}
