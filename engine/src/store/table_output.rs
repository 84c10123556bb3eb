//! Writes ordered entries into tables of a sorted run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
    mem,
    sync::Arc,
    vec,
};

use bytes::Bytes;
use sievedb_format::{InternalKey, RangeTombstone, SequenceNumber, range_tombstone::ends_above};
use sievedb_sstable::{BlobUse, TableOrigin};

use crate::{
    Result,
    compaction::{borders::Borders, retain::RetainStream},
    filter_policy::FilterChoice,
    iter::cursor::Cursor,
    keyspace_options::KeyspaceOptions,
    on_threads::beside_threads,
    resolve::{blob_for, is_in_blob_file, put_for},
    store::logged_values::FlushedValues,
    sync::Mutex,
    table::TableMeta,
    table::TablePlace,
    table::blob_output::{BlobOutput, NewBlobs},
    table::blobs::Blob,
    table::builder::TableBuilder,
    table::cache_room::WorkerShare,
    table::room::NewEntries,
    table::store::TableStore,
};

/// Properties of all tables of a flush or a compaction.
#[derive(Debug)]
pub(crate) struct NewTables<'a> {
    pub(crate) options: &'a KeyspaceOptions,
    pub(crate) filter: FilterChoice,
    /// Upper bound of the entries of all tables.
    pub(crate) entries_max: u64,
    /// Estimated entries of the largest table.
    pub(crate) table_entries_max: u64,
    pub(crate) place: TablePlace,
    /// Origin of the last table.
    pub(crate) origin: TableOrigin,
    /// Blob files whose values are moved.
    pub(crate) rewritten_blobs: BTreeSet<u64>,
    /// Store clock when the newest entry was written, or later, in milliseconds.
    pub(crate) written_ms: Option<u64>,
    /// Values of a flush that are in blob files already.
    pub(super) flushed_values: Option<&'a FlushedValues<'a>>,
    /// A planted bug.
    pub(crate) misplaces_blobs: bool,
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

/// The tables of a range of keys. The last one is open, as it may be the last one of its group.
#[derive(Debug, Default)]
pub(crate) struct RangeTables {
    written: Vec<Arc<TableMeta>>,
    open: Option<OpenTable>,
}

/// A table with all its entries. It is obsolete unless it is finished.
#[derive(Debug)]
struct OpenTable {
    table: TableBuilder,
    /// Blob files that it refers to.
    blob_files: Vec<BlobUse>,
    new_blobs: NewBlobs,
    blob_depth: u64,
}

impl OpenTable {
    /// Ends the blob files of the table.
    fn new(table: TableBuilder, blobs: &mut BlobOutput, tables: &TableStore) -> Result<Self> {
        let (blob_files, new_blobs, blob_depth) = blobs.end_table(tables)?;
        Ok(Self { table, blob_files, new_blobs, blob_depth })
    }

    fn finish(self, place: TablePlace, origin: TableOrigin) -> Result<Arc<TableMeta>> {
        let origin = TableOrigin { blob_files: self.blob_files, ..origin };
        let table = self.table.finish(place, origin, self.blob_depth)?;
        self.new_blobs.finish();
        Ok(table)
    }
}

/// Writes all entries of `kept` into tables that end at `borders`, or earlier if memory for writing
/// is short, all of one sorted run. All versions of a key are in one table.
/// Range tombstones are cut where a table ends.
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
    kept: &mut RetainStream<'_, C, B, S>,
    share: &Arc<WorkerShare>,
    borders: Borders,
) -> Result<Vec<Arc<TableMeta>>> {
    let written = write_range(tables, new, kept, share, borders)?;
    finish_group(tables, new, vec![written], 0)
}

/// Writes a range of keys as [`write_tables`], without the last table of the range.
///
/// # Errors
///
/// As [`write_tables`].
pub(crate) fn write_range<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool>(
    tables: &TableStore,
    new: &NewTables<'_>,
    kept: &mut RetainStream<'_, C, B, S>,
    share: &Arc<WorkerShare>,
    borders: Borders,
) -> Result<RangeTables> {
    let mut written = Vec::new();
    match write_each(tables, new, kept, share, borders, &mut written) {
        Ok(open) => Ok(RangeTables { written, open }),
        Err(error) => {
            discard(tables, written, false);
            Err(error)
        }
    }
}

/// Removes the tables of a group of ranges, another one of which failed.
pub(crate) fn discard_ranges(tables: &TableStore, ranges: impl IntoIterator<Item = RangeTables>) {
    discard(tables, ranges.into_iter().flat_map(|range| range.written).collect(), false);
}

/// Removes tables of a group, the newest first. `is_whole` is `true` if the group is complete.
fn discard(tables: &TableStore, mut written: Vec<Arc<TableMeta>>, is_whole: bool) {
    written.sort_unstable_by_key(|table| Reverse(table.id));
    written.iter().for_each(|table| tables.discard(table, is_whole));
}

/// Finishes a group of ranges with all its tables, by up to `threads` threads beside this one.
///
/// # Errors
///
/// As [`write_tables`].
pub(crate) fn finish_group(
    tables: &TableStore,
    new: &NewTables<'_>,
    ranges: Vec<RangeTables>,
    threads: usize,
) -> Result<Vec<Arc<TableMeta>>> {
    let (mut written, mut open) = (Vec::new(), Vec::new());
    for range in ranges {
        written.extend(range.written);
        open.extend(range.open);
    }
    let result = finish_each(tables, new, open, threads, &mut written);
    let is_whole = result.is_ok();
    // Syncs and the manifest edit follow.
    if let Err(error) = result.and_then(|()| tables.check_not_closing()) {
        discard(tables, written, is_whole);
        return Err(error);
    }
    for table in &mut written {
        Arc::make_mut(table).written_ms = new.written_ms;
    }
    Ok(written)
}

fn finish_each(
    tables: &TableStore,
    new: &NewTables<'_>,
    mut open: Vec<OpenTable>,
    threads: usize,
    written: &mut Vec<Arc<TableMeta>>,
) -> Result<()> {
    // A repair finds the last table of a group by its number.
    open.sort_unstable_by_key(|open| open.table.id());
    let Some(last) = open.pop() else { return Ok(()) };
    let open: Vec<_> = open.into_iter().map(|open| Mutex::new(Some(open))).collect();
    let finish = |open: &Mutex<Option<OpenTable>>| {
        let open = open.lock().take().expect("each is finished once");
        open.finish(new.place, new.origin_of_part())
    };
    let mut failed = Ok(());
    for finished in beside_threads(threads, &open, finish, finish) {
        match finished {
            Ok(table) => written.push(table),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed?;
    if !written.is_empty() || !last.new_blobs.is_empty() {
        // The last table lists what the group replaces, so the entries of the other files are
        // durable before it.
        tables.sync_dir()?;
    }
    written.push(last.finish(new.place, new.origin_of_last(tables))?);
    Ok(())
}

/// Writes all tables except the last one into `written`, and returns that.
fn write_each<C: Cursor, B: FnMut(&[u8]) -> bool, S: FnMut() -> bool>(
    tables: &TableStore,
    new: &NewTables<'_>,
    kept: &mut RetainStream<'_, C, B, S>,
    share: &Arc<WorkerShare>,
    mut borders: Borders,
    written: &mut Vec<Arc<TableMeta>>,
) -> Result<Option<OpenTable>> {
    let NewTables { options, filter, place, mut entries_max, .. } = *new;
    let mut blobs = BlobOutput::new(tables, options, share, new.misplaces_blobs);
    let reading_bytes = share.bytes();
    let mut current: Option<TableBuilder> = None;
    let mut ranges = PendingRanges::new(kept.kept_ranges());
    kept.seek_to_first()?;
    loop {
        let key = kept.key();
        let range =
            ranges.next_start().filter(|&start| key.is_none_or(|key| start <= key.user_key));
        let Some(next) = range.or(key.map(|key| key.user_key)) else { break };
        let bytes = current.as_ref().map_or(0, TableBuilder::bytes);
        let is_end = borders.is_end(bytes, next);
        let is_full = |table: &TableBuilder| is_end || table.has_its_share();
        let may_split = range.is_some() || kept.may_split();
        if may_split && current.as_ref().is_some_and(|it| !it.is_empty() && is_full(it)) {
            let mut full = current.take().expect("a full table was just seen");
            entries_max = entries_max.saturating_sub(full.entries());
            let next = next.to_vec();
            ranges.end_table(&mut full, Some(&next))?;
            let full = OpenTable::new(full, &mut blobs, tables)?;
            written.push(full.finish(place, new.origin_of_part())?);
        }
        let table = match &mut current {
            Some(table) => table,
            None => {
                let of_table = entries_max.min(new.table_entries_max);
                let entries = Some(NewEntries { of_table, of_all: new.entries_max });
                current.insert(tables.create(options, filter, share, reading_bytes, entries)?)
            }
        };
        if ranges.add_up_to(table, kept.key().map(|key| key.user_key))? {
            continue;
        }
        if let Some(key) = kept.key() {
            if is_in_blob_file(key.trailer) {
                let blob = kept.blob()?;
                let is_moved = new.rewritten_blobs.contains(&blob.reference.file_id) && {
                    // Of its own: the stream counts what is moved.
                    let (user_key, trailer) = (key.user_key.to_vec(), key.trailer);
                    let key = InternalKey::new(&user_key, trailer);
                    let count = |bytes| kept.count_moved(bytes);
                    move_value(&mut blobs, tables, table, key, &blob, count)?
                };
                if let Some(key) = kept.key().filter(|_| !is_moved) {
                    blobs.add_reference(table, key, &kept.value(), &blob)?;
                }
            } else {
                let value = kept.value();
                match new.flushed_values.and_then(|flushed| flushed.find(key.trailer, &value)) {
                    Some(blob) => {
                        let key = InternalKey::new(key.user_key, blob_for(key.trailer));
                        let mut stored = Vec::new();
                        blob.reference.encode(&mut stored);
                        blobs.add_reference(table, key, &stored, &blob)?;
                    }
                    None => blobs.add(tables, table, key, &value)?,
                }
            }
            kept.next()?;
        }
    }
    let Some(mut last) = current else { return Ok(None) };
    ranges.end_table(&mut last, None)?;
    OpenTable::new(last, &mut blobs, tables).map(Some)
}

/// Adds the entry with a copy of its value: to a blob file in pieces, if it is long. Returns
/// `false` if the value cannot be read now. Calls `count` with the bytes before they are written.
fn move_value(
    blobs: &mut BlobOutput,
    tables: &TableStore,
    table: &mut TableBuilder,
    key: InternalKey<'_>,
    blob: &Blob,
    mut count: impl FnMut(usize) -> Result<()>,
) -> Result<bool> {
    let put = InternalKey::new(key.user_key, put_for(key.trailer));
    if !blobs.is_long(blob.value_bytes()) {
        let Some(value) = blob.read_to_rewrite()? else { return Ok(false) };
        count(value.len())?;
        return blobs.add(tables, table, put, &value).map(|()| true);
    }
    let Some(pieces) = blob.to_rewrite(blob.pieces())? else { return Ok(false) };
    let (mut piece, mut number, mut unread) = (Bytes::new(), 0, None);
    let added = blobs.add_from(tables, table, put, blob.value_bytes(), |mut to| {
        while !to.is_empty() {
            if piece.is_empty() {
                tables.check_not_closing()?;
                let read = blob.read_piece(&pieces, number);
                piece = read.inspect_err(|error| unread = Some(error.clone()))?;
                count(piece.len())?;
                number += 1;
            }
            let copied = piece.split_to(piece.len().min(to.len()));
            to[..copied.len()].copy_from_slice(&copied);
            to = &mut to[copied.len()..];
        }
        Ok(())
    });
    match unread {
        Some(error) => blob.to_rewrite(Err::<(), _>(error)).map(|_| false),
        None => added.map(|()| true),
    }
}

/// The range tombstones of an output, added to its tables in key order.
struct PendingRanges {
    rest: Peekable<vec::IntoIter<RangeTombstone>>,
    /// Ranges that begin before the current position, and may reach into the next table, by end.
    open: BTreeMap<End, Arc<[u8]>>,
}

/// Key of an open range: unbounded flag, end, sequence number. In the order of ends. The ranges of
/// a sequence number are disjoint.
type End = (bool, Arc<[u8]>, SequenceNumber);

impl PendingRanges {
    /// `ranges` are sorted by start.
    fn new(ranges: Vec<RangeTombstone>) -> Self {
        Self { rest: ranges.into_iter().peekable(), open: BTreeMap::new() }
    }

    /// Returns the start of the next range tombstone.
    fn next_start(&mut self) -> Option<&[u8]> {
        self.rest.peek().map(|range| &*range.start)
    }

    /// Opens the next range tombstone if it begins at or before `key`; without a key in any case.
    /// Returns whether it did. Adds those that end before it.
    fn add_up_to(&mut self, table: &mut TableBuilder, key: Option<&[u8]>) -> Result<bool> {
        let begins = |range: &RangeTombstone| key.is_none_or(|key| *range.start <= *key);
        let Some(next) = self.rest.next_if(begins) else { return Ok(false) };
        while let Some(first) = self.open.first_entry()
            && !ends_above(&first.key().1, &next.start)
        {
            let ((_, end, sequence), start) = first.remove_entry();
            table.add_range_tombstone(RangeTombstone { start, end, sequence })?;
        }
        self.open.insert((next.end.is_empty(), next.end, next.sequence), next.start);
        Ok(true)
    }

    /// Adds the open range tombstones up to the first key of the next table, which gets the rest.
    fn end_table(&mut self, table: &mut TableBuilder, next: Option<&[u8]>) -> Result<()> {
        let next: Option<Arc<[u8]>> = next.map(Into::into);
        for ((is_unbounded, end, sequence), start) in mem::take(&mut self.open) {
            let cut = next.as_ref().filter(|next| ends_above(&end, next));
            let last = cut.unwrap_or(&end);
            if cut.is_none_or(|cut| start < *cut) {
                let end = Arc::clone(last);
                table.add_range_tombstone(RangeTombstone { start, end, sequence })?;
            }
            if let Some(cut) = cut {
                self.open.insert((is_unbounded, end, sequence), Arc::clone(cut));
            }
        }
        Ok(())
    }
}
