//! Writes ordered entries into tables of a sorted run.

use std::sync::Arc;

use sievedb_sstable::TableOrigin;

use crate::{
    Result, compaction::retain::RetainStream, filter_policy::FilterChoice, iter::cursor::Cursor,
    keyspace_options::KeyspaceOptions, table::TableMeta, table::TablePlace,
    table::builder::TableBuilder, table::cache_room::WorkerShare, table::store::TableStore,
};

/// Properties of all tables of a flush or a compaction.
#[derive(Debug)]
pub(crate) struct NewTables<'a> {
    pub(crate) options: &'a KeyspaceOptions,
    pub(crate) filter: FilterChoice,
    pub(crate) place: TablePlace,
    /// Origin of the last table.
    pub(crate) origin: TableOrigin,
}

impl NewTables<'_> {
    /// Returns the origin of a table that is not the last of the group.
    fn origin_of_part(&self) -> TableOrigin {
        TableOrigin { completed: None, ..self.origin.clone() }
    }

    /// Returns the origin of the last table of the group, which lists all obsolete tables.
    fn origin_of_last(&self, tables: &TableStore) -> TableOrigin {
        let mut origin = self.origin.clone();
        if let Some(completed) = &mut origin.completed {
            completed.replaced.extend(tables.obsolete_files.retired());
            completed.replaced.sort_unstable();
            completed.replaced.dedup();
        }
        origin
    }
}

/// Writes all entries of `kept` into tables of about [`KeyspaceOptions::table_bytes`] each, or less
/// if memory for writing is short, all of one sorted run. All versions of a key are in one table.
/// The part of `share` that is taken already is for reading.
///
/// The data of the tables is durable at return, their directory entries are not.
///
/// # Errors
///
/// Errors of reading and writing; [`Error::Closed`] if the store is being closed. Tables written
/// before the error are obsolete.
pub(crate) fn write_tables<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool>(
    tables: &TableStore,
    new: &NewTables<'_>,
    kept: &mut RetainStream<C, B, S>,
    share: &Arc<WorkerShare>,
) -> Result<Vec<Arc<TableMeta>>> {
    let mut written = Vec::new();
    let result = write_each(tables, new, kept, share, &mut written);
    let is_whole = result.is_ok();
    // Syncs and the manifest edit follow.
    let result = result.and_then(|()| tables.check_not_closing());
    if result.is_err() {
        for table in written.iter().rev() {
            tables.discard(table.id, is_whole);
        }
    }
    result.map(|()| written)
}

fn write_each<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool>(
    tables: &TableStore,
    new: &NewTables<'_>,
    kept: &mut RetainStream<C, B, S>,
    share: &Arc<WorkerShare>,
    written: &mut Vec<Arc<TableMeta>>,
) -> Result<()> {
    let NewTables { options, filter, place, .. } = *new;
    let reading_bytes = share.bytes();
    let mut current: Option<TableBuilder> = None;
    kept.seek_to_first()?;
    while let Some(key) = kept.key() {
        let is_full =
            |table: &TableBuilder| table.bytes() >= options.table_bytes || table.has_its_share();
        if kept.may_split() && current.as_ref().is_some_and(is_full) {
            let full = current.take().expect("a full table was just seen");
            written.push(full.finish(place, new.origin_of_part())?);
        }
        let table = match &mut current {
            Some(table) => table,
            None => current.insert(tables.create(options, filter, share, reading_bytes)?),
        };
        table.add(key, &kept.value())?;
        kept.next()?;
    }
    if let Some(last) = current {
        if !written.is_empty() {
            // The last table lists what the group replaces, so the entries of the others are
            // durable before it.
            tables.sync_dir()?;
        }
        written.push(last.finish(place, new.origin_of_last(tables))?);
    }
    Ok(())
}
