//! The tables of a damaged store.

use std::{collections::BTreeSet, iter, ops::Bound, path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use sievedb_filter::{FilterArena, TableFilter, hash::key_hash};
use sievedb_format::{Corruption, InternalKey, Kind, file_header::HEADER_BYTES};
use sievedb_sstable::{
    BlockCache, CursorOptions, FilterState, RescannedTable, Table, TableProblem, TableSource,
    rescan::Gap,
};

use super::{OlderValues, Repair, Saved, lost::check_lost, source::PatchedSource};
use crate::{
    Error, Result,
    file_name::FileName,
    store::verify_table::all_keys,
    table::{TableMeta, files::TableFiles, table_error},
};

/// Bytes that are read at once of a table that is scanned.
const READ_BYTES: usize = 1 << 20;
/// What cannot be read is bounded to this many bytes: a sector.
const SECTOR_BYTES: usize = 512;

/// The bytes of a file, with zeros in place of what the disk does not give back.
fn read_readable(source: &dyn TableSource) -> Result<Bytes> {
    let length = usize::try_from(source.len()).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::zeroed(length);
    let chunks = (HEADER_BYTES..length).step_by(READ_BYTES);
    let chunks = chunks.map(|start| start..length.min(start + READ_BYTES));
    // The header apart: the first block lies behind it.
    let mut places: Vec<_> = iter::once(0..length.min(HEADER_BYTES)).chain(chunks).collect();
    while let Some(place) = places.pop() {
        match source.read_at(place.start as u64, place.len()) {
            Ok(read) => bytes[place].copy_from_slice(&read),
            Err(error) => {
                check_lost(&Error::io("read", "table", error))?;
                if place.len() > SECTOR_BYTES {
                    let middle = place.start + place.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
                    let middle = middle.max(place.start + SECTOR_BYTES);
                    places.extend([middle..place.end, place.start..middle]);
                }
            }
        }
    }
    Ok(bytes.freeze())
}

/// What tells which keys were in a table that cannot be read.
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

impl Repair<'_> {
    /// Copies what can be read of a table over what older ones had.
    pub(super) fn table(&mut self, saved: &mut Saved, meta: &TableMeta) -> Result<()> {
        let path = FileName::Table(meta.id).path(self.folder);
        let files = TableFiles::one_by_one(Arc::clone(self.fs()), Arc::default());
        let source = files.source_once(&path).map_err(|error| Error::io("open", &path, error));
        let members = Membership {
            filter: self.filter(meta, source.as_ref().ok(), &files)?,
            hash_seed: self.loaded.state.hash_seed,
        };
        let table = source.clone().and_then(|source| {
            let state = &self.loaded.state;
            let identity = meta.identity(state.store_id, state.hash_seed);
            let source = Arc::new(PatchedSource::new(source));
            let table = Table::open(source, identity, meta.bytes, Arc::new(BlockCache::new(0)));
            table.map_err(|error| table_error(&path, error))
        });
        let table = match table {
            Ok(table) => Arc::new(table),
            Err(error) => {
                check_lost(&error)?;
                return self.rescan(saved, meta, source.ok(), &error, &members);
            }
        };
        self.found.tables += 1;
        let mut ends = BTreeSet::new();
        for TableProblem { error, keys, bytes, .. } in table.verify(&mut |_| ()).problems {
            let error = table_error(&path, error);
            check_lost(&error)?;
            if let Some(keys) = keys.clone() {
                if let Bound::Included(end) = &keys.1 {
                    ends.insert(end.clone());
                }
                self.doubt(saved, keys, &members)?;
            }
            self.found.error_of_keys(&error, keys);
            self.found.lost_bytes(bytes);
        }
        let options = CursorOptions { skip_damaged: true, ..CursorOptions::whole_table() };
        let mut cursor = Arc::clone(&table).cursor(options);
        let mut moved = cursor.seek_to_first();
        let mut last: Option<Vec<u8>> = None;
        while let (Ok(()), Some(key)) = (&moved, cursor.key()) {
            let user_key = key.user_key;
            // Of several versions the newest comes first.
            if last.as_deref() != Some(user_key) {
                self.newest(saved, &path, key, cursor.value_ref(), &ends)?;
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(user_key);
            }
            moved = cursor.next();
        }
        if let Err(error) = moved {
            let error = table_error(&path, error);
            check_lost(&error)?;
            let keys = (
                last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.into())),
                all_keys(meta).1,
            );
            self.found.error_of_keys(&error, Some(keys.clone()));
            self.doubt(saved, keys, &members)?;
        }
        Ok(())
    }

    /// Copies the data blocks of a table that cannot be opened because of `error`.
    fn rescan(
        &mut self,
        saved: &mut Saved,
        meta: &TableMeta,
        source: Option<Arc<dyn TableSource>>,
        error: &Error,
        members: &Membership,
    ) -> Result<()> {
        let path = FileName::Table(meta.id).path(self.folder);
        // Filters lie behind the data.
        let filters =
            [meta.filter, meta.prefix_filter.as_ref().map(|it| it.place), meta.range_filter];
        let own = filters.into_iter().flatten().filter(|place| place.file_id == meta.id);
        let end = own.map(|place| place.offset).min().unwrap_or(meta.bytes);
        let found = match source {
            Some(source) => {
                RescannedTable::scan(&read_readable(&*source)?, meta.salt, meta.entries, end)
            }
            None => RescannedTable::scan(&Bytes::new(), meta.salt, meta.entries, end),
        };
        if found.entries() == 0 {
            self.found.error_of_keys(error, Some(all_keys(meta)));
            self.found.lost_bytes(meta.bytes);
            return self.doubt(saved, all_keys(meta), members);
        }
        self.found.tables += 1;
        self.rescanned += 1;
        let mut ends = BTreeSet::new();
        for Gap { place, keys: (from, to) } in found.gaps() {
            let within = |bound: &Bound<Bytes>, outermost: Bound<Bytes>| match bound {
                Bound::Unbounded => outermost,
                bound => bound.clone(),
            };
            let (first, last) = all_keys(meta);
            let keys = (within(from, first), within(to, last));
            if let Bound::Included(end) = to {
                ends.insert(end.clone());
            }
            self.doubt(saved, keys.clone(), members)?;
            let missing = Corruption::Missing { what: "data block" };
            self.found.error_of_keys(&Error::corrupt(&path, place.start, missing), Some(keys));
            // What was cut off is lost as well.
            let end = if *to == Bound::Unbounded { end.max(place.end) } else { place.end };
            self.found.lost_bytes(end - place.start);
        }
        let mut last: Option<Vec<u8>> = None;
        found.for_each(|key, value| {
            if last.as_deref() == Some(key.user_key) {
                return Ok(());
            }
            last = Some(key.user_key.to_vec());
            self.newest(saved, &path, key, value, &ends)
        })
    }

    /// Copies the newest entry that a table has of a key.
    fn newest(
        &mut self,
        saved: &mut Saved,
        path: &Path,
        InternalKey { user_key, trailer }: InternalKey<'_>,
        value: &[u8],
        ends: &BTreeSet<Bytes>,
    ) -> Result<()> {
        match trailer.kind() {
            Kind::Put => self.entry(saved, user_key, Some(value), ends),
            Kind::Tombstone => self.entry(saved, user_key, None, ends),
            kind => {
                let (what, value) = ("kind of an entry", kind as u64);
                let source = Corruption::Unsupported { what, value };
                let key = Bound::Included(Bytes::copy_from_slice(user_key));
                let error = Error::corrupt(path, 0, source);
                self.found.error_of_keys(&error, Some((key.clone(), key)));
                Ok(())
            }
        }
    }

    /// Copies the newest entry that a table has of a key, which is a value or a tombstone. `ends` are the keys
    /// at the ends of damaged blocks.
    fn entry(
        &self,
        saved: &mut Saved,
        key: &[u8],
        value: Option<&[u8]>,
        ends: &BTreeSet<Bytes>,
    ) -> Result<()> {
        if ends.contains(key) {
            // Newer versions of this key may have ended the damaged block before.
            return self.note_older(saved, key, |saved| saved.store(key, value));
        }
        saved.put(key, value)
    }

    /// The filter of a table, wherever it lies; none if it is lost.
    fn filter(
        &self,
        meta: &TableMeta,
        source: Option<&Arc<dyn TableSource>>,
        files: &TableFiles,
    ) -> Result<Option<TableFilter>> {
        let state = &self.loaded.state;
        let identity = meta.identity(state.store_id, state.hash_seed);
        let Some(place) = meta.filter else { return Ok(None) };
        let heap = FilterArena::heap();
        let loaded = if place.file_id == meta.id {
            let Some(source) = source else { return Ok(None) };
            FilterState::load(&**source, &identity, Some(place.into()), &heap)
        } else {
            let path = FileName::Filter(place.file_id).path(self.folder);
            match files.source_once(&path).map_err(|error| Error::io("open", path, error)) {
                Ok(source) => {
                    let id = place.file_id;
                    FilterState::load_file(&*source, &identity, id, place.into(), &heap)
                }
                Err(error) => return check_lost(&error).map(|()| None),
            }
        };
        Ok(match loaded {
            FilterState::Resident(filter) => Some(filter),
            _ => None,
        })
    }

    /// Something may be lost that was newer than what is there of these keys.
    fn doubt(
        &mut self,
        saved: &mut Saved,
        keys: (Bound<Bytes>, Bound<Bytes>),
        members: &Membership,
    ) -> Result<()> {
        for key in saved.keyspace.range(keys).keys() {
            let key = key?;
            if members.may_contain(&key) {
                self.note_older(saved, &key, |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Notes that what there is of a key may be older than what is lost, and removes it, or lets `keep` keep it.
    fn note_older(
        &self,
        saved: &mut Saved,
        key: &[u8],
        keep: impl FnOnce(&Saved) -> Result<()>,
    ) -> Result<()> {
        match self.older {
            OlderValues::LeaveOut => saved.store(key, None)?,
            OlderValues::Keep => keep(saved)?,
        }
        saved.older.insert(saved.hash(key));
        Ok(())
    }
}
