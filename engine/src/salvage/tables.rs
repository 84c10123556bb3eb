//! The tables of a damaged store.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use bytes::Bytes;
use sievedb_filter::{FilterArena, TableFilter, hash::key_hash};
use sievedb_format::{Corruption, Kind};
use sievedb_sstable::{BlockCache, CursorOptions, FilterState, Table, TableProblem, TableSource};

use super::{OlderValues, Salvage, Saved, lost::check_lost, source::PatchedSource};
use crate::{
    Error, Result,
    file_name::FileName,
    store::verify_table::all_keys,
    table::{TableMeta, files::TableFiles, table_error},
};

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

impl Salvage<'_> {
    /// Copies what can be read of a table over what older ones had.
    pub(super) fn table(&mut self, saved: &mut Saved, meta: &TableMeta) -> Result<()> {
        let path = FileName::Table(meta.id).path(self.folder);
        let files = TableFiles::one_by_one(Arc::clone(self.fs()), Arc::default());
        let source = files.source_once(&path).map_err(|error| Error::io("open", &path, error));
        let members = Membership {
            filter: self.filter(meta, source.as_ref().ok(), &files)?,
            hash_seed: self.loaded.state.hash_seed,
        };
        let table = source.and_then(|source| {
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
                self.found.error_of_keys(&error, Some(all_keys(meta)));
                return self.doubt(saved, all_keys(meta), &members);
            }
        };
        self.found.tables += 1;
        let mut ends = BTreeSet::new();
        for TableProblem { error, keys, .. } in table.verify(&mut |_| ()).problems {
            let error = table_error(&path, error);
            check_lost(&error)?;
            if let Some(keys) = keys.clone() {
                if let Bound::Included(end) = &keys.1 {
                    ends.insert(end.clone());
                }
                self.doubt(saved, keys, &members)?;
            }
            self.found.error_of_keys(&error, keys);
        }
        let options = CursorOptions { skip_damaged: true, ..CursorOptions::whole_table() };
        let mut cursor = Arc::clone(&table).cursor(options);
        let mut moved = cursor.seek_to_first();
        let mut last: Option<Vec<u8>> = None;
        while let (Ok(()), Some(key)) = (&moved, cursor.key()) {
            let user_key = key.user_key;
            // Of several versions the newest comes first.
            if last.as_deref() != Some(user_key) {
                match (key.trailer.kind(), cursor.value_ref()) {
                    (Kind::Put, value) => self.entry(saved, user_key, Some(value), &ends)?,
                    (Kind::Tombstone, _) => self.entry(saved, user_key, None, &ends)?,
                    (kind, _) => {
                        let (what, value) = ("kind of an entry", kind as u64);
                        let source = Corruption::Unsupported { what, value };
                        let key = Bound::Included(Bytes::copy_from_slice(user_key));
                        let error = Error::corrupt(&path, 0, source);
                        self.found.error_of_keys(&error, Some((key.clone(), key)));
                    }
                }
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
