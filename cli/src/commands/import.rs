//! `sieve import`.

use std::{
    io::{self, BufRead as _, Read as _, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sievedb::{Db, Durability, KEY_BYTES_MAX, Keyspace, VALUE_BYTES_MAX};

use super::{WriteArgs, with_room};
use crate::{
    error::{Error, Result},
    interrupt,
    text::{Notation, counted},
};

/// Length of the longest line with its end: each byte as an escape.
const LINE_BYTES_MAX: usize = 4 * KEY_BYTES_MAX + 1 + 4 * VALUE_BYTES_MAX + 1;

/// Stores what `sieve scan` prints, from standard input, durably at the end. Creates the store if
/// it does not exist.
///
/// Ctrl-C makes the entries stored so far durable, prints their number, and exits with 130.
///
/// Each line is one entry: the key, a tab, the value. An entry replaces the value that its key has.
/// The import stops at the first line that is no entry, and reports its number; the lines before it
/// are stored. Such a line has no tab, a second tab, or a carriage return at its end: write these
/// two as `\t` and `\r`. Prints the number of entries imported.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: WriteArgs,
    #[command(flatten)]
    notation: Notation,
    /// Each line is a key alone, as `sieve scan --keys-only` prints it. A new key gets the empty
    /// value; a present key keeps its value. A blank line is no entry.
    #[arg(long)]
    keys_only: bool,
}

/// How many lines were imported.
#[derive(Debug, Default)]
struct Counts {
    stored: AtomicU64,
    /// Lines whose keys kept their values.
    kept: AtomicU64,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (db, keyspace) = self.keyspace.open_or_create()?;
        let counts = Arc::<Counts>::default();
        // Taken back at the end: the handle of the handler would keep the store open.
        let held = Arc::new(Mutex::new(Some(db.clone())));
        let (so_far, interrupted) = (Arc::clone(&counts), Arc::clone(&held));
        // On a thread of its own: this one may wait for input.
        interrupt::exit_with(move || {
            let imported = so_far.text();
            let db = interrupted.lock().unwrap_or_else(PoisonError::into_inner);
            match db.as_ref().map_or(Ok(()), |db| db.persist(Durability::Disk)) {
                Ok(()) => imported,
                Err(error) => format!("{imported}; they may not be durable: {error}"),
            }
        });
        let stored = self.store_all(&db, &keyspace, &counts);
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
        // What came before a bad line is stored, too.
        db.persist(Durability::Disk)?;
        stored?;
        writeln!(out, "{}", counts.text())?;
        Ok(())
    }

    /// Stores the lines of standard input, up to the first that is no entry. Adds each to `counts`.
    fn store_all(&self, db: &Db, keyspace: &Keyspace, counts: &Counts) -> Result<()> {
        let mut input = io::stdin().lock();
        let mut line = String::new();
        let mut number = 0;
        loop {
            number += 1;
            line.clear();
            let mut bounded = input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
            let read = bounded.read_line(&mut line);
            if bounded.limit() == 0 {
                return Err(Error::BadLine { number, reason: "it is longer than any entry" });
            }
            if read.map_err(|error| bad_encoding(number, error))? == 0 {
                return Ok(());
            }
            let (key, value) =
                self.split(&line).map_err(|reason| Error::BadLine { number, reason })?;
            let bytes = |text| {
                let bytes = self.notation.bytes(text);
                bytes.map_err(|reason| Error::BadLine { number, reason })
            };
            let (key, value) = (bytes(key)?, bytes(value)?);
            let is_stored = with_room(db, || match self.keys_only {
                true => keyspace.insert_if_absent(&key, &value),
                false => keyspace.insert(&key, &value).map(|()| true),
            });
            let is_stored = is_stored.map_err(|source| Error::RefusedLine { number, source })?;
            let count = if is_stored { &counts.stored } else { &counts.kept };
            count.fetch_add(1, Ordering::Release);
        }
    }

    /// Key and value of a line, as they are written.
    fn split<'a>(&self, line: &'a str) -> Result<(&'a str, &'a str), &'static str> {
        if !self.keys_only {
            return split(line);
        }
        let key = line.strip_suffix('\n').unwrap_or(line);
        if key.is_empty() {
            return Err("it is blank; `sieve put STORE '' ''` stores the empty key");
        }
        match key.contains(['\t', '\r']) {
            true => Err(
                r"there is a tab or a carriage return, which a key has as \t or \r (09 or 0d in hex)",
            ),
            false => Ok((key, "")),
        }
    }
}

impl Counts {
    fn text(&self) -> String {
        let [stored, kept] = [&self.stored, &self.kept].map(|count| count.load(Ordering::Acquire));
        let stored = counted(stored, ["entry", "entries"]);
        match kept {
            0 => format!("imported: {stored}"),
            kept => {
                format!(
                    "imported: {stored}; {} kept",
                    counted(kept, ["present key", "present keys"])
                )
            }
        }
    }
}

/// Key and value of a line, as they are written. What `sieve scan` never prints is more likely to
/// be of another format than to be meant.
fn split(line: &str) -> Result<(&str, &str), &'static str> {
    let line = line.strip_suffix('\n').unwrap_or(line);
    if line.ends_with('\r') {
        return Err(
            r"it ends with a carriage return, which is not printed as such (\r, or 0d in hex)",
        );
    }
    let (key, value) = line.split_once('\t').ok_or("there is no tab behind the key")?;
    if value.contains('\t') {
        return Err(
            r"there is a second tab, and a tab of a key or a value is written \t (09 in hex)",
        );
    }
    Ok((key, value))
}

fn bad_encoding(number: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::BadLine { number, reason: "it is not UTF-8" },
        _ => Error::Input(error),
    }
}
