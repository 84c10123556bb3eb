//! `sieve import`.

use std::io::{self, BufRead as _, Read as _};

use sievedb::{Db, Durability, KEY_BYTES_MAX, Keyspace, VALUE_BYTES_MAX};

use super::KeyspaceArgs;
use crate::{
    error::{Error, Result},
    text::Notation,
};

/// Length of the longest line with its end: each byte as an escape.
const LINE_BYTES_MAX: usize = 4 * KEY_BYTES_MAX + 1 + 4 * VALUE_BYTES_MAX + 1;

/// Stores what `sieve scan` prints, from standard input, durably at the end; makes the store and the keyspace
/// if there are none.
///
/// Each line is an entry: the key, a tab, the value. A line that is none ends it; those before are stored then.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    notation: Notation,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let (db, keyspace) = self.keyspace.open_or_create()?;
        let stored = self.store_all(&db, &keyspace);
        // What came before a bad line is stored, too.
        db.persist(Durability::Disk)?;
        stored
    }

    /// Stores the lines of standard input, up to the first that is no entry.
    fn store_all(&self, db: &Db, keyspace: &Keyspace) -> Result<()> {
        let mut input = io::stdin().lock();
        let mut line = String::new();
        for number in 1.. {
            line.clear();
            let mut bounded = input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            let read = bounded.read_line(&mut line);
            if bounded.limit() == 0 {
                return Err(Error::BadLine { number, reason: "it is longer than any entry" });
            }
            if read.map_err(|error| bad_encoding(number, error))? == 0 {
                break;
            }
            let text = line.strip_suffix('\n').unwrap_or(&line);
            let (key, value) = text
                .split_once('\t')
                .ok_or(Error::BadLine { number, reason: "there is no tab behind the key" })?;
            let bytes = |text| {
                let bytes = self.notation.bytes(text);
                bytes.map_err(|reason| Error::BadLine { number, reason })
            };
            store(db, keyspace, &bytes(key)?, &bytes(value)?)
                .map_err(|source| Error::RefusedLine { number, source })?;
        }
        Ok(())
    }
}

/// Stores an entry, with a larger memory budget if it needs one.
fn store(db: &Db, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> sievedb::Result<()> {
    match keyspace.insert(key, value) {
        Err(sievedb::Error::WriteTooLarge { bytes, .. }) => {
            // Memtables have a quarter of it, of which three quarters at most are for one write.
            db.set_memory_budget(bytes.saturating_mul(8))?;
            keyspace.insert(key, value)
        }
        stored => stored,
    }
}

fn bad_encoding(number: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::BadLine { number, reason: "it is not UTF-8" },
        _ => Error::Input(error),
    }
}
