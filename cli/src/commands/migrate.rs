//! `sieve migrate`.

use std::{io::Write, path::PathBuf};

use clap::ValueEnum;
use indicatif::ProgressBar;
use sievedb::{Db, Durability};
use sievedb_migrate::{Digest, Options, RocksDb};

use super::{
    Access, CURRENT,
    copied::{Copied, table},
    not_opened, open_store, options, with_room,
};
use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    text::escape,
};

/// Bytes of keys and values in a batch. A larger entry is written alone.
const BATCH_BYTES: u64 = 256 << 10;

/// Copies a database of another engine into a new store, and verifies the copy.
///
/// Each column family becomes a keyspace of the same name, with the newest value of each key. Merge
/// operands are folded. Nothing in the database is changed. No process may have it open.
///
/// Then reads the new store, and compares the number of entries and a digest of all keys and values.
/// Prints both for each keyspace. Exits with 1 if one differs.
///
/// The new store is incomplete if the command fails or is interrupted: delete it, then migrate
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
    /// Directory of the write-ahead logs, if they are not in that of the database.
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
        let dest = self.dest.display().to_string();
        interrupt::exit_with(move || {
            format!("{dest} is incomplete; delete it, then migrate again")
        });
        let store = options().open(&self.dest).map_err(|error| not_opened(&self.dest, error))?;
        let copied = copy_all(&database, &store);
        drop(store);
        let (copied, differing) = copied
            .and_then(|copied| self.verify(&copied).map(|differing| (copied, differing)))
            .map_err(|error| Error::Incomplete {
                store: self.dest.clone(),
                source: Box::new(error),
            })?;
        writeln!(out, "{}", table(&copied))?;
        match differing {
            None => Ok(()),
            Some(keyspace) => Err(Error::CopyDiffers { store: self.dest.clone(), keyspace }),
        }
    }

    fn open_rocksdb(&self) -> Result<RocksDb> {
        let options = match &self.wal_dir {
            Some(path) => Options::new().wal_dir(path),
            None => Options::new(),
        };
        Ok(options.open(&self.source)?)
    }

    /// Reads the new store. Returns the name of a keyspace that differs from its column family.
    fn verify(&self, copied: &[Copied]) -> Result<Option<String>> {
        let store = open_store(&self.dest, Access::Read)?;
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
}

/// Copies all column families, and makes them durable.
fn copy_all(database: &RocksDb, store: &Db) -> Result<Vec<Copied>> {
    let names = database.column_families().map(str::to_owned);
    let copied = names.map(|name| copy(database, store, name)).collect::<Result<_>>()?;
    store.flush()?;
    store.persist(Durability::Disk)?;
    Ok(copied)
}

/// Copies the column family `name` into a keyspace.
fn copy(database: &RocksDb, store: &Db, name: String) -> Result<Copied> {
    let keyspace = store.keyspace(&name)?;
    let progress: ProgressBar = progress::counter("entries", &format!("copying {name:?}"));
    let mut copied = Copied { name, bytes: 0, digest: Digest::default() };
    let mut batch = store.batch();
    for entry in database.entries(&copied.name)? {
        let (key, value) = entry?;
        let refused = |source| Error::RefusedEntry {
            key: escape(&key),
            keyspace: copied.name.clone(),
            source: Box::new(source),
        };
        let entry_bytes = (key.len() + value.len()) as u64;
        if entry_bytes > BATCH_BYTES {
            with_room(store, || keyspace.insert(&key, &value)).map_err(refused)?;
        } else {
            batch.insert(&keyspace, &key, &value).map_err(refused)?;
        }
        if batch.bytes() > BATCH_BYTES {
            batch.commit(Durability::OsBuffer)?;
        }
        copied.digest.add(&key, &value);
        copied.bytes += entry_bytes;
        progress.inc(1);
    }
    batch.commit(Durability::OsBuffer)?;
    progress.finish_and_clear();
    Ok(copied)
}
