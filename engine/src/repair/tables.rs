//! Reads the tables of a damaged store.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use sievedb_filter::{FilterArena, TableFilter, hash::key_hash};
use sievedb_format::{
    Corruption, InternalKey, RangeTombstoneSource, RangeTombstones, SEQUENCE_MAX, SequenceNumber,
    Trailer,
};
use sievedb_sstable::{
    BlobUse, BlockCache, CursorOptions, FilterState, FilterUnusable, ReadError, SalvagedCursor,
    SalvagedTable, Table, TableCursor, TableProblem, TableSource, salvage::Gap,
};

use super::{
    Repair, Saved,
    copied::Copied,
    doubts::Doubts,
    lost::{check_lost, lost_as_none},
    source::{PatchedSource, ZeroedSource},
};
use crate::{
    Error, Result,
    file_name::FileName,
    resolve::{ReadPoint, Refused, Seen, is_in_blob_file, put_for},
    store::verify_table::all_keys,
    table::{
        TableMeta,
        blobs::{BlobFile, find_blob},
        files::TableFiles,
        table_error,
    },
};

/// Membership of keys in an unreadable table.
struct Membership {
    filter: Option<TableFilter>,
    hash_seed: u64,
}

impl Membership {
    fn may_contain(&self, key: &[u8]) -> bool {
        let hash = || key_hash(key, self.hash_seed);
        self.filter.as_ref().is_none_or(|filter| filter.may_contain_hash(hash()))
    }
}

pub(super) type Keys = (Bound<Bytes>, Bound<Bytes>);

/// The readable part of a table.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) entries: Entries,
    /// Keys whose entries may be lost.
    pub(super) doubts: Vec<Keys>,
    /// Keys at the ends of damaged blocks, whose newer versions may be lost.
    ends: BTreeSet<Bytes>,
    /// Range tombstones; `None` if they are lost.
    pub(super) ranges: Option<Arc<RangeTombstones>>,
    /// Blob files that entries refer to, or the errors of lost ones.
    blobs: Vec<Result<Arc<BlobFile>>>,
}

impl Opened {
    /// Returns trailer and value of the current entry. A value in a blob file is read, and returned
    /// as a put.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Corrupt`]: the value is lost.
    pub(super) fn version(&self, trailer: Trailer) -> Result<(Trailer, Cow<'_, [u8]>)> {
        let stored = self.entries.value();
        if !is_in_blob_file(trailer) {
            return Ok((trailer, Cow::Borrowed(stored)));
        }
        let files: Vec<_> = self.blobs.iter().flatten().cloned().collect();
        let value = match find_blob(&files, stored) {
            Ok(blob) => blob.read()?,
            Err(source) => {
                let lost = self.blobs.iter().find_map(|blob| blob.as_ref().err());
                let error = || Error::corrupt(&self.path, 0, source);
                return Err(lost.cloned().unwrap_or_else(error));
            }
        };
        Ok((put_for(trailer), Cow::Owned(value.to_vec())))
    }

    /// Returns the keys of the table after `last`.
    pub(super) fn keys_behind(&self, meta: &TableMeta, last: Option<&[u8]>) -> Keys {
        let from = last.map(|last| Bound::Excluded(Bytes::copy_from_slice(last)));
        (from.unwrap_or(Bound::Unbounded), all_keys(meta).1)
    }
}

pub(super) enum Entries {
    Table(TableCursor),
    Rescanned(SalvagedCursor),
    None,
}

impl Entries {
    pub(super) fn key(&self) -> Option<InternalKey<'_>> {
        match self {
            Self::Table(cursor) => cursor.key(),
            Self::Rescanned(cursor) => cursor.key(),
            Self::None => None,
        }
    }

    /// Requires a positioned cursor.
    pub(super) fn value(&self) -> &[u8] {
        match self {
            Self::Table(cursor) => cursor.value_ref(),
            Self::Rescanned(cursor) => cursor.value(),
            Self::None => &[],
        }
    }

    pub(super) fn next(&mut self) -> Result<(), ReadError> {
        match self {
            Self::Table(cursor) => cursor.next(),
            Self::Rescanned(cursor) => cursor.advance().map_err(ReadError::Io),
            Self::None => Ok(()),
        }
    }
}

impl Repair<'_> {
    /// Copies the readable part of a table over older ones.
    pub(super) fn table(&mut self, saved: &mut Saved, meta: &TableMeta) -> Result<()> {
        let files = TableFiles::one_by_one(Arc::clone(self.fs()), Arc::default());
        let mut opened = self.open_table(meta, &files)?;
        let members = Membership {
            // Filters do not contain range tombstones.
            filter: match &opened.ranges {
                Some(_) => self.filter(meta, &files)?,
                None => None,
            },
            hash_seed: self.loaded.state.hash_seed,
        };
        let ranges = opened.ranges.take().unwrap_or_default();
        for range in ranges.iter() {
            saved.remove_range(range)?;
        }
        let mut own = Doubts::default();
        for keys in opened.doubts.drain(..) {
            own.add(keys.clone());
            self.doubt(saved, keys, &members)?;
        }
        let mut last: Option<Vec<u8>> = None;
        let mut copied: Option<Copied> = None;
        while let Some(key) = opened.entries.key() {
            let user_key = key.user_key;
            // The newest version comes first.
            if last.as_deref() != Some(user_key) {
                if let Some(before) = copied.take() {
                    saved.merge(self.older, &before, Some(&own))?;
                }
                let is_older = opened.ends.contains(user_key);
                let cover = ranges.newest_cover(user_key, SEQUENCE_MAX).unwrap_or(0);
                copied = self.newest(saved, &opened, key, (is_older, cover))?;
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(user_key);
            } else if let Some(copied) = &mut copied {
                self.add_older(copied, &opened, key)?;
            }
            if let Err(error) = opened.entries.next() {
                let keys = opened.keys_behind(meta, last.as_deref());
                self.stopped(&table_error(&opened.path, error), keys.clone())?;
                own.add(keys.clone());
                self.doubt(saved, keys, &members)?;
                copied.iter_mut().for_each(Copied::doubt);
            }
        }
        copied.map_or(Ok(()), |last| saved.merge(self.older, &last, Some(&own)))
    }

    /// Opens a table, records its damage, and moves to its first entry.
    pub(super) fn open_table(&mut self, meta: &TableMeta, files: &TableFiles) -> Result<Opened> {
        let path = FileName::Table(meta.id).path(self.folder);
        let source = files.source(meta.id, path.clone());
        let table = source.clone().and_then(|source| {
            let state = &self.loaded.state;
            let identity = meta.identity(state.store_id, state.hash_seed);
            let source = Arc::new(PatchedSource::new(source));
            let table = Table::open(source, identity, meta.bytes, Arc::new(BlockCache::new(0)));
            let table = table.map_err(|error| table_error(&path, error))?;
            if let Some(sequence) = meta.global_sequence {
                table.set_global_sequence(sequence);
            }
            Ok(table)
        });
        let table = match table {
            Ok(table) => Arc::new(table),
            Err(error) => {
                check_lost(&error)?;
                return self.rescan(path, meta, source.ok(), &error);
            }
        };
        self.found.tables += 1;
        let (mut doubts, mut ends) = (Vec::new(), BTreeSet::new());
        for TableProblem { error, keys, bytes, .. } in table.verify(&mut |_| ()).problems {
            let error = table_error(&path, error);
            check_lost(&error)?;
            if let Some(keys) = keys.clone() {
                if let Bound::Included(end) = &keys.1 {
                    ends.insert(end.clone());
                }
                doubts.push(keys);
            }
            self.found.error_of_keys(&error, keys);
            self.found.lost_bytes(bytes);
        }
        let ranges = Some(Arc::clone(table.range_tombstones()));
        let options = CursorOptions { skip_damaged: true, ..CursorOptions::whole_table() };
        let mut cursor = Arc::clone(&table).cursor(options);
        let moved = cursor.seek_to_first();
        let blobs = self.blobs(meta)?;
        let mut opened =
            Opened { path, entries: Entries::Table(cursor), doubts, ends, ranges, blobs };
        if let Err(error) = moved {
            let keys = opened.keys_behind(meta, None);
            self.stopped(&table_error(&opened.path, error), keys.clone())?;
            opened.doubts.push(keys);
        }
        Ok(opened)
    }

    /// Finds the data blocks of a table that cannot be opened because of `error`.
    fn rescan(
        &mut self,
        path: PathBuf,
        meta: &TableMeta,
        source: Option<Arc<dyn TableSource>>,
        error: &Error,
    ) -> Result<Opened> {
        // Filters follow the data.
        let filters =
            [meta.filter, meta.prefix_filter.as_ref().map(|it| it.place), meta.range_filter];
        let own = filters.into_iter().flatten().filter(|place| place.file_id == meta.id);
        let end = own.map(|place| place.offset).min().unwrap_or(meta.bytes);
        let source = match source {
            Some(source) => Arc::new(ZeroedSource(source)) as Arc<dyn TableSource>,
            None => Arc::new(Bytes::new()),
        };
        let read_error = |error| Error::io("read", &path, error);
        let found = SalvagedTable::scan(source, meta.salt, meta.entries, end);
        let found = found.map_err(read_error)?;
        let ranges = (meta.range_tombstones == 0).then(Arc::default);
        if found.entries() == 0 {
            self.found.error_of_keys(error, Some(all_keys(meta)));
            self.found.lost_bytes(meta.bytes);
            let (doubts, ends) = (vec![all_keys(meta)], BTreeSet::new());
            let blobs = Vec::new();
            return Ok(Opened { path, entries: Entries::None, doubts, ends, ranges, blobs });
        }
        self.found.tables += 1;
        self.rescanned += 1;
        let (mut doubts, mut ends) = (Vec::new(), BTreeSet::new());
        for Gap { range, keys: (from, to) } in found.gaps() {
            let within = |bound: &Bound<Bytes>, outermost: Bound<Bytes>| match bound {
                Bound::Unbounded => outermost,
                bound => bound.clone(),
            };
            let (first, last) = all_keys(meta);
            let keys = (within(from, first), within(to, last));
            if let Bound::Included(end) = to {
                ends.insert(end.clone());
            }
            doubts.push(keys.clone());
            let missing = Corruption::Missing { what: "data block" };
            self.found.error_of_keys(&Error::corrupt(&path, range.start, missing), Some(keys));
            // Truncated bytes are lost too.
            let end = if *to == Bound::Unbounded { end.max(range.end) } else { range.end };
            self.found.lost_bytes(end - range.start);
        }
        if ranges.is_none() {
            let missing = Corruption::Missing { what: "block of range tombstones" };
            let error = Error::corrupt(&path, end, missing);
            self.found.error_of_keys(&error, Some(all_keys(meta)));
            doubts.push(all_keys(meta));
        }
        let entries = Entries::Rescanned(found.into_cursor().map_err(read_error)?);
        let blobs = self.blobs(meta)?;
        Ok(Opened { path, entries, doubts, ends, ranges, blobs })
    }

    /// Opens the blob files of a table.
    fn blobs(&self, meta: &TableMeta) -> Result<Vec<Result<Arc<BlobFile>>>> {
        let files = TableFiles::few_at_once(Arc::clone(self.fs()), Arc::default());
        let open = |used: &BlobUse| {
            let opened = BlobFile::open(&files, self.folder, self.loaded.state.store_id, *used);
            match opened.map(Arc::new) {
                Err(error) => check_lost(&error).map(|()| Err(error)),
                opened => Ok(opened),
            }
        };
        meta.blob_files.iter().map(open).collect()
    }

    /// Records that the value of a key is lost.
    pub(super) fn lost_value(&mut self, user_key: &[u8], error: &Error) -> Result<()> {
        check_lost(error)?;
        let key = Bound::Included(Bytes::copy_from_slice(user_key));
        self.found.error_of_keys(error, Some((key.clone(), key)));
        Ok(())
    }

    /// Adds the current entry, an older version of the key, to the versions to copy.
    pub(super) fn add_older(
        &mut self,
        copied: &mut Copied,
        opened: &Opened,
        InternalKey { user_key, trailer }: InternalKey<'_>,
    ) -> Result<()> {
        match opened.version(trailer) {
            Ok((trailer, value)) => {
                if let Err(refused) = copied.add(trailer, &value) {
                    self.refused(&opened.path, user_key, refused);
                }
                Ok(())
            }
            Err(error) => {
                copied.doubt();
                self.lost_value(user_key, &error)
            }
        }
    }

    /// Copies the newest entry of a key in the tables. `is_older` is `true` if a newer one may be
    /// lost. `cover` is the newest range tombstone over the key, or 0. Returns a merge operand,
    /// which requires older versions.
    pub(super) fn newest(
        &mut self,
        saved: &mut Saved,
        opened: &Opened,
        InternalKey { user_key, trailer }: InternalKey<'_>,
        (is_older, cover): (bool, SequenceNumber),
    ) -> Result<Option<Copied>> {
        let (trailer, value) = match opened.version(trailer) {
            Ok(version) => version,
            Err(_) if cover > trailer.sequence() => (trailer, Cow::default()),
            Err(error) => {
                self.lost_value(user_key, &error)?;
                saved.note_older(self.older, user_key, |_| Ok(()))?;
                return Ok(None);
            }
        };
        let value = &*value;
        let value = match ReadPoint::AS_STORED.seen(trailer, || value, || cover) {
            Ok(Seen::Value) => Some((trailer.kind(), value)),
            Ok(Seen::Nothing) => None,
            Ok(Seen::Operand) => {
                return Ok(Some(Copied::new(user_key, value, is_older, cover)));
            }
            Err(refused) => {
                self.refused(&opened.path, user_key, refused);
                return Ok(None);
            }
        };
        if is_older {
            saved.note_older(self.older, user_key, |saved| saved.store(user_key, value))?;
        } else {
            saved.put(user_key, value)?;
        }
        Ok(None)
    }

    /// Records that an entry of a key cannot be copied.
    pub(super) fn refused(&mut self, path: &Path, user_key: &[u8], refused: Refused) {
        let key = Bound::Included(Bytes::copy_from_slice(user_key));
        let error = Error::corrupt(path, 0, refused.into());
        self.found.error_of_keys(&error, Some((key.clone(), key)));
    }

    /// Returns the filter of a table; `None` if it is lost.
    fn filter(&self, meta: &TableMeta, files: &TableFiles) -> Result<Option<TableFilter>> {
        let state = &self.loaded.state;
        let identity = meta.identity(state.store_id, state.hash_seed);
        let Some(place) = meta.filter else { return Ok(None) };
        let heap = FilterArena::heap();
        let is_own = place.file_id == meta.id;
        let name = if is_own { FileName::Table(meta.id) } else { FileName::Filter(place.file_id) };
        let path = name.path(self.folder);
        let source = files.source_once(&path).map_err(|error| Error::io("open", &path, error));
        let Some(source) = lost_as_none(source)? else { return Ok(None) };
        let own_file = (!is_own).then_some(place.file_id);
        match FilterState::load(&*source, &identity, own_file, place.into(), &heap) {
            FilterState::Resident(filter) => Ok(Some(filter)),
            FilterState::Unusable(FilterUnusable::Io(error)) => {
                check_lost(&Error::io("read", path, error)).map(|()| None)
            }
            _ => Ok(None),
        }
    }

    /// Handles keys whose newer versions may be lost.
    fn doubt(
        &mut self,
        saved: &mut Saved,
        keys: (Bound<Bytes>, Bound<Bytes>),
        members: &Membership,
    ) -> Result<()> {
        saved.doubts.add(keys.clone());
        for key in saved.keyspace.range(keys).keys() {
            let key = key?;
            if members.may_contain(&key) {
                saved.note_older(self.older, &key, |_| Ok(()))?;
            }
        }
        Ok(())
    }
}
