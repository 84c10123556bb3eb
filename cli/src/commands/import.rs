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

/// Length of the longest line with its newline, each byte as an escape.
const LINE_BYTES_MAX: usize = 4 * KEY_BYTES_MAX + 1 + 4 * VALUE_BYTES_MAX + 1;

/// Writes entries from standard input, in the format of `sieve scan`. Creates the store if it does
/// not exist.
///
/// Each line is one entry: the key, a tab, the value. An entry replaces the value of a present key.
/// Write a tab in a key or value as `\t`, and a carriage return at the end of a line as `\r`.
///
/// Stops at the first line that is not an entry, reports its number and exits with 2. All earlier
/// lines are stored. The entries are durable when the command exits. Prints their number.
///
/// Ctrl-C makes the entries stored so far durable, prints their number, and exits with 130.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: WriteArgs,
    #[command(flatten)]
    notation: Notation,
    /// Each line is a key without a value, as `sieve scan --keys-only` prints it. An absent key
    /// gets the empty value; a present key keeps its value. A blank line is not an entry.
    #[arg(long)]
    keys_only: bool,
}

/// Numbers of imported lines.
#[derive(Debug, Default)]
struct Counts {
    stored: AtomicU64,
    /// Lines with a present key, which kept its value.
    kept: AtomicU64,
}

impl Args {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let (db, keyspace) = self.keyspace.open_or_create()?;
        let counts = Arc::<Counts>::default();
        // Taken at the end: the handler's handle would keep the store open.
        let held = Arc::new(Mutex::new(Some(db.clone())));
        let (so_far, interrupted) = (Arc::clone(&counts), Arc::clone(&held));
        // Runs on another thread: this one may be blocked on input.
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
        // Entries before a bad line are stored too.
        db.persist(Durability::Disk)?;
        stored?;
        writeln!(out, "{}", counts.text())?;
        Ok(())
    }

    /// Stores lines of standard input up to the first that is not an entry. Counts them in
    /// `counts`.
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
                return Err(Error::BadLine {
                    number,
                    reason: "the line is longer than the longest entry",
                });
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

    /// Splits a line into key and value, still escaped.
    fn split<'a>(&self, line: &'a str) -> Result<(&'a str, &'a str), &'static str> {
        if !self.keys_only {
            return split(line);
        }
        let key = line.strip_suffix('\n').unwrap_or(line);
        if key.is_empty() {
            return Err("the line is blank; `sieve put STORE '' ''` stores the empty key");
        }
        match key.contains(['\t', '\r']) {
            true => {
                Err(r"write a tab or carriage return in a key as \t or \r (09 or 0d with --hex)")
            }
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

/// Splits a line into key and value, still escaped.
///
/// Refuses raw tabs and carriage returns, which `sieve scan` never prints: the input probably has
/// another format.
fn split(line: &str) -> Result<(&str, &str), &'static str> {
    let line = line.strip_suffix('\n').unwrap_or(line);
    if line.ends_with('\r') {
        return Err(r"write the carriage return at its end as \r (0d with --hex), or remove it");
    }
    let (key, value) = line.split_once('\t').ok_or("no tab after the key")?;
    if value.contains('\t') {
        return Err(r"a second tab; write a tab in a key or value as \t (09 with --hex)");
    }
    Ok((key, value))
}

fn bad_encoding(number: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::BadLine { number, reason: "the line is not UTF-8" },
        _ => Error::Input(error),
    }
}
