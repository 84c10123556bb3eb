//! Ingests table files that were written elsewhere.
//!
//! Their entries are copied into tables of the store. A file cannot be linked into the store: its
//! store id and salt are foreign to recovery, repair and encryption. It also has no filters,
//! because their hash seed is that of the store. The copy reads each file once, which verifies it.
//! Files with adjacent key ranges are grouped up to the length of a table. Several threads copy
//! groups.

use std::{mem, path::PathBuf, sync::Arc};

use sievedb_format::{Corruption, TableBounds};
use sievedb_sstable::{BlockCache, CursorOptions, READ_AHEAD_BYTES_MAX, Table, TableProperties};

use crate::{
    Error, Result,
    commit::check_entry,
    on_threads::on_threads,
    resolve::{has_lasting_values_only, is_lasting_value},
    store::Store,
    store::ingest_tables::{IngestTables, TableRun},
    table::{files::TableFiles, table_error},
};

/// A file to ingest.
#[derive(Debug)]
struct ForeignTable {
    path: PathBuf,
    table: Arc<Table>,
    bytes: u64,
}

impl ForeignTable {
    fn bounds(&self) -> &TableBounds {
        &self.table.properties().bounds
    }
}

impl Store {
    /// Copies the entries of the tables `paths` into tables of an ingest without entries.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::NotIngestible`], [`Error::Closed`].
    pub(crate) fn add_ingested_files(
        &self,
        tables: &mut IngestTables,
        paths: &[PathBuf],
    ) -> Result<()> {
        let fs = Arc::clone(self.target.stored());
        let files = TableFiles::few_at_once(fs, Arc::clone(&self.tables.counters));
        let open = |(path, id): (&PathBuf, u64)| {
            let absolute = self.target.stored().absolute(path);
            open(&files, id, absolute.map_err(|error| Error::io("locate", path, error))?)
        };
        let opened = paths.iter().zip(0..).map(open);
        let opened = opened.collect::<Result<Vec<_>>>()?;
        let has_entries = |it: &ForeignTable| it.table.properties().entries() > 0;
        let (mut opened, empty): (Vec<_>, Vec<_>) = opened.into_iter().partition(has_entries);
        empty.iter().try_for_each(|file| copy(file, |_, _| Ok(())))?;
        opened.sort_by(|left, right| left.bounds().smallest.cmp(&right.bounds().smallest));
        if let Some([left, right]) =
            opened.array_windows().find(|[left, right]| !left.bounds().is_before(right.bounds()))
        {
            let reason = format!("its keys overlap those of {}", left.path.display());
            return Err(Error::NotIngestible { path: right.path.clone(), reason });
        }
        let groups = groups(opened, tables.table_bytes());
        let (store, plan) = (&self.tables, &tables.plan);
        let copied = on_threads(tables.threads(), &groups, |group| {
            let mut run = TableRun::default();
            let copied = group.iter().try_for_each(|file| {
                let share = store.worker_share();
                let _reading = share.take(READ_AHEAD_BYTES_MAX as u64);
                copy(file, |key, value| run.add(store, plan, key, value))
            });
            let copied = copied.and_then(|()| run.end_table(store, plan));
            // Also after an error: the caller discards them.
            Ok((mem::take(&mut run.written), copied))
        })?;
        let entries = groups.iter().flatten().map(|file| file.table.properties().entries()).sum();
        tables.count(entries);
        tables.take(copied)
    }
}

/// Opens a file, and checks that it can be ingested.
fn open(files: &TableFiles, id: u64, path: PathBuf) -> Result<ForeignTable> {
    let source = files.source(id, path.as_path())?;
    let bytes = source.len();
    let table = Table::open_foreign(source, Arc::new(BlockCache::new(0)));
    let table = table.map_err(|error| table_error(&path, error))?;
    match refusal(table.properties()) {
        Some(reason) => Err(Error::NotIngestible { path, reason: reason.into() }),
        None => Ok(ForeignTable { path, table: Arc::new(table), bytes }),
    }
}

/// Returns why a table cannot be ingested; `None` if it can.
fn refusal(properties: &TableProperties) -> Option<&'static str> {
    if !has_lasting_values_only(properties) {
        return Some(
            "it has tombstones, merge operands, or values that expire or are in blob files",
        );
    }
    (properties.user_keys != properties.entries()).then_some("it has several values of a key")
}

/// Groups consecutive files, up to `bytes_max` bytes each.
fn groups(files: Vec<ForeignTable>, bytes_max: u64) -> Vec<Vec<ForeignTable>> {
    let mut groups: Vec<Vec<ForeignTable>> = Vec::new();
    let mut bytes = 0_u64;
    for file in files {
        bytes = bytes.saturating_add(file.bytes);
        match groups.last_mut() {
            Some(group) if bytes <= bytes_max => group.push(file),
            _ => {
                bytes = file.bytes;
                groups.push(vec![file]);
            }
        }
    }
    groups
}

/// Calls `add` for each entry of `file`.
///
/// # Errors
///
/// [`Error::Corrupt`] if the entries are not those that the properties describe;
/// [`Error::NotIngestible`] if one is too long; errors of `add`.
fn copy(file: &ForeignTable, mut add: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let ForeignTable { path, table, .. } = file;
    let corrupt = |error| table_error(path, error);
    let wrong = |what| Error::corrupt(path, 0, Corruption::Order { what });
    let mut cursor = Arc::clone(table).cursor(CursorOptions::whole_table());
    cursor.seek_to_first().map_err(corrupt)?;
    let (mut last, mut entries) = (None::<Vec<u8>>, 0);
    while let Some(key) = cursor.key() {
        let is_ascending = last.as_deref().is_none_or(|last| last < key.user_key);
        if !is_ascending || !is_lasting_value(key.trailer) {
            return Err(wrong("entries of a table"));
        }
        // Bounds of the files are apart, also those with an exclusive end.
        if !file.bounds().holds(key.user_key) {
            return Err(wrong("range of the entries of a table"));
        }
        let value = cursor.value_ref();
        check_entry(key.user_key, value).map_err(|error| {
            let reason = format!("an entry is too long: {error}");
            Error::NotIngestible { path: path.clone(), reason }
        })?;
        add(key.user_key, value)?;
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key.user_key);
        entries += 1;
        cursor.next().map_err(corrupt)?;
    }
    if entries != table.properties().entries() {
        return Err(wrong("number of the entries of a table"));
    }
    Ok(())
}
