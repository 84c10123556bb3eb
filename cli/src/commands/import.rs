//! `sieve import`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use sievedb::{
    Db, Durability, Keyspace, UnsortedIngestion,
    fs::{Fs as _, RealFs},
};

use super::{LOST_AND_FOUND, WriteArgs, with_room};
use crate::{
    bench::progress,
    error::{Error, Result},
    interrupt,
    messages::message,
    records::{InputFormat, Record, RecordReader},
    text::{Notation, counted},
};

/// Writes entries from standard input, in the format of `sieve scan` or `sieve export`.
///
/// Creates the store if it does not exist; with `--keyspace`, only with `--create-keyspace`.
///
/// Each line is one entry: the key, a tab, the value. An entry replaces the value of a present key.
/// Write a tab in a key or value as `\t`, and a carriage return at the end of a line as `\r`. The
/// last line needs no newline: only `--format json` detects a truncated entry.
///
/// Records of JSON and CSV may name their keyspace; others go to `--keyspace`.
///
/// Stops at the first line that is not an entry, reports its number and exits with 2. Without
/// `--ingest`, all earlier lines are stored. The entries are durable when the command exits. Prints
/// their number.
///
/// Ctrl-C makes the entries stored so far durable, prints their number, and exits with 130. With
/// `--ingest`, only complete keyspaces are stored: remove the directory that the message names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    keyspace: WriteArgs,
    #[command(flatten)]
    notation: Notation,
    /// Format of the input.
    #[arg(long, value_name = "FORMAT", default_value = "lines", conflicts_with = "keys_only")]
    format: InputFormat,
    /// Each line is a key without a value, as `sieve scan --keys-only` prints it. An absent key
    /// gets the empty value; a present key keeps its value. A blank line is not an entry.
    #[arg(long)]
    keys_only: bool,
    /// Sort the entries outside of the store, then add them without log: faster for much data. Adds
    /// all entries of a keyspace at once, one keyspace after another. After a bad line, nothing is
    /// stored.
    #[arg(long, conflicts_with = "keys_only")]
    ingest: bool,
    /// Directory for sorted entries, empty or missing, one directory in it for each keyspace.
    /// Default: the directory of the store with `.import` appended.
    #[arg(long, value_name = "DIR", requires = "ingest")]
    temporary: Option<PathBuf>,
    /// Memory to sort entries, for each keyspace.
    #[arg(long, value_name = "MIB", default_value_t = 256, requires = "ingest")]
    sort_memory: usize,
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
        if self.ingest {
            return self.ingest(&db, &keyspace, out);
        }
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
        // Entries before a bad line are stored too.
        let persisted = db.persist(Durability::Disk);
        // Not before: without a handle, the handler reports the entries as durable.
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Err(_), Err(error)) = (&stored, &persisted) {
            let text = format!("sieve: earlier lines may not be durable: {}\n", message(error));
            // If standard error is closed, the exit code still reports the failure.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        stored?;
        persisted?;
        writeln!(out, "{}", counts.text())?;
        Ok(())
    }

    /// Sorts all records of standard input in a directory, and ingests them.
    fn ingest(&self, db: &Db, keyspace: &Keyspace, out: &mut dyn Write) -> Result<()> {
        let dir = self.temporary.clone().map_or_else(|| default_dir(self.keyspace.store()), Ok)?;
        check_empty(&dir)?;
        let existed = dir.exists();
        let ingested = self.ingest_all(db, keyspace, &dir, out);
        remove_empty(&dir, existed);
        ingested
    }

    fn ingest_all(
        &self,
        db: &Db,
        keyspace: &Keyspace,
        dir: &Path,
        out: &mut dyn Write,
    ) -> Result<()> {
        let shown = dir.display().to_string();
        let finished = Arc::<Mutex<Vec<String>>>::default();
        let so_far = Arc::clone(&finished);
        interrupt::exit_with(move || {
            let finished = so_far.lock().unwrap_or_else(PoisonError::into_inner);
            match finished.is_empty() {
                true => format!("no keyspace was imported; remove {shown}"),
                false => format!("only imported {}; remove {shown}", finished.join(", ")),
            }
        });
        let input = io::stdin().lock();
        let mut records = RecordReader::new(input, self.format, self.keys_only, self.notation);
        let memory_bytes = self.sort_memory.saturating_mul(1 << 20);
        let mut sorted = BTreeMap::<Option<String>, UnsortedIngestion>::new();
        let progress = progress::counter("entries", "sorting");
        while let Some(Record { number, keyspace: name, key, value }) = records.next()? {
            // A record may name the keyspace of the command.
            let name = name.filter(|name| *name != keyspace.name());
            let ingestion = match sorted.get_mut(&name) {
                Some(ingestion) => ingestion,
                None => {
                    let dir = dir.join(sorted.len().to_string());
                    let target = name.as_ref().map(|name| self.keyspace.named(db, name));
                    let target = target.unwrap_or_else(|| Ok(keyspace.clone()));
                    let target = target.map_err(|source| Error::RefusedLine { number, source })?;
                    let ingestion = target.unsorted_ingestion(dir, memory_bytes)?;
                    sorted.entry(name).or_insert(ingestion)
                }
            };
            let added = ingestion.insert(&key, &value);
            added.map_err(|source| Error::RefusedLine { number, source })?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        let (mut stored, mut tables) = (0, 0);
        for (name, ingestion) in sorted {
            let merging = progress::bar(ingestion.entries(), "entries", "writing tables");
            let ingested = ingestion.finish_with(|entries| merging.set_position(entries))?;
            merging.finish_and_clear();
            let name = format!("{:?}", name.unwrap_or_else(|| keyspace.name()));
            finished.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            stored += ingested.entries;
            tables += ingested.tables as u64;
        }
        let stored = counted(stored, ["entry", "entries"]);
        writeln!(out, "imported: {stored} in {}", counted(tables, ["table", "tables"]))?;
        Ok(())
    }

    /// Stores records of standard input up to the first that is not an entry. Adds their number to
    /// `counts`.
    fn store_all(&self, db: &Db, keyspace: &Keyspace, counts: &Counts) -> Result<()> {
        let input = io::stdin().lock();
        let mut records = RecordReader::new(input, self.format, self.keys_only, self.notation);
        // The last one that a record named.
        let mut named: Option<(String, Keyspace)> = None;
        while let Some(Record { number, keyspace: name, key, value }) = records.next()? {
            let keyspace = match &name {
                None => keyspace,
                Some(name) => match named.take_if(|(last, _)| last == name) {
                    Some(last) => &named.insert(last).1,
                    None => {
                        let opened = self.keyspace.named(db, name);
                        let opened =
                            opened.map_err(|source| Error::RefusedLine { number, source })?;
                        &named.insert((name.clone(), opened)).1
                    }
                },
            };
            let is_stored = with_room(db, || match self.keys_only {
                true => keyspace.insert_if_absent(&key, &value),
                false => keyspace.insert(&key, &value).map(|()| true),
            });
            let is_stored = is_stored.map_err(|source| Error::RefusedLine { number, source })?;
            let count = if is_stored { &counts.stored } else { &counts.kept };
            count.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}

/// Returns the default directory for sorted entries, beside the store.
fn default_dir(store: &Path) -> Result<PathBuf> {
    let resolved = match store.file_name() {
        Some(_) => store.to_owned(),
        // `.` and `..` have no name to append to.
        None => {
            let io = |source| Error::Io { op: "resolve", path: store.to_owned(), source };
            RealFs.resolve(store).map_err(io)?
        }
    };
    let mut name = resolved.file_name().unwrap_or_default().to_owned();
    name.push(".import");
    Ok(resolved.with_file_name(name))
}

/// Refuses a directory with files or directories, which a message would advise to remove.
fn check_empty(dir: &Path) -> Result<()> {
    // If it cannot be listed, its use reports the error.
    let names = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    match names.into_iter().find(|name| name != LOST_AND_FOUND) {
        Some(name) => {
            let (path, name) = (dir.to_owned(), name.to_string_lossy().into_owned());
            Err(sievedb::Error::DirectoryNotEmpty { path, name }.into())
        }
        None => Ok(()),
    }
}

/// Removes the empty directories in `dir`, and `dir` itself unless it `existed`.
fn remove_empty(dir: &Path, existed: bool) {
    // What remains is harmless.
    let entries = dir.read_dir().into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name() != LOST_AND_FOUND) {
        let _ = fs::remove_dir(entry.path());
    }
    if !existed {
        let _ = fs::remove_dir(dir);
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
