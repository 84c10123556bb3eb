//! What a lost manifest would say, by the tables and the log.
//!
//! Each table names its keyspace with its options. The last table of a flush or compaction names
//! the tables that count no more: its inputs, and all that were replaced or dropped before and not
//! yet unlinked. Those are left out. An input beside its output would bring keys back whose
//! tombstone was dropped at the bottom.
//!
//! A table that was not the last of its group may lie beside all of its inputs. It adds nothing to
//! them: the entry with the largest sequence number counts, whichever table has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use sievedb_format::{Corruption, FileHeader, FileKind, file_header::HEADER_BYTES};
use sievedb_sstable::{FoundTable, TableOrigin};

use super::lost::check_lost;
use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    log::Position,
    manifest::{KeyspaceState, ManifestState, load::Loaded},
    table::{TableMeta, files::TableFiles, table_error},
    wal::{chain::Segments, segment::segment_ids},
};

/// A state in place of that of a manifest.
pub(super) struct Rebuilt {
    pub(super) loaded: Loaded,
    /// Ids of the segments of each log that there is, ascending.
    pub(super) segments: Vec<Vec<u64>>,
    /// Keyspaces whose names others have: they were dropped.
    pub(super) dropped: BTreeSet<u64>,
    /// Tables that count no more.
    pub(super) left_out: u64,
    /// Why tables cannot be read of which nothing else is known.
    pub(super) unknown: Vec<Error>,
}

/// Returns what the tables and the log in `folder` say, or `None` if there are none of one store.
///
/// # Errors
///
/// [`Error::Io`] for what is no fault of a file, [`Error::NewerRelease`].
pub(super) fn rebuild(
    fs: &Arc<dyn Fs>,
    folder: &Path,
    names: &[String],
) -> Result<Option<Rebuilt>> {
    let files = TableFiles::one_by_one(Arc::clone(fs), Arc::default());
    let (mut tables, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
    for name in names {
        let Some(FileName::Table(id)) = FileName::parse(name) else { continue };
        match read(&files, folder, id) {
            Ok(found) => drop(tables.insert(id, found)),
            Err(error) => {
                check_lost(&error)?;
                unreadable.insert(id, error);
            }
        }
    }
    let logs = segment_ids(names);
    let Some(store_id) = store_id(&**fs, folder, &tables, &logs)? else { return Ok(None) };
    for (&id, _) in tables.iter().filter(|(_, found)| found.table.store_id != store_id) {
        let (what, expected, found) = ("store id", store_id as u64, 0);
        let reason = Corruption::Mismatch { what, expected, found };
        unreadable.insert(id, Error::corrupt(FileName::Table(id).path(folder), 0, reason));
    }
    tables.retain(|_, found| found.table.store_id == store_id);

    let completed = |found: &Found| found.origin.completed.clone();
    let replaced: BTreeSet<u64> =
        tables.values().filter_map(completed).flat_map(|done| done.replaced).collect();
    let mut state = ManifestState::new(store_id, 0);
    let highest_first = tables.iter().rev();
    let mut left_out = 0;
    for (&id, Found { table, origin, bytes }) in highest_first {
        // The newest table has the newest options.
        let known = state.keyspaces.entry(origin.keyspace).or_insert_with(|| {
            Arc::new(KeyspaceState {
                name: origin.name.to_string(),
                options: origin.options.to_vec(),
                ..KeyspaceState::default()
            })
        });
        let known = Arc::make_mut(known);
        let flushed = origin.completed.as_ref().map_or(0, |done| done.flushed);
        known.flushed = known.flushed.max(flushed);
        if replaced.contains(&id) {
            left_out += 1;
            continue;
        }
        known.tables.insert(id, Arc::new(meta(id, *bytes, table, origin)));
    }
    let dropped = leave_out_namesakes(&mut state, &mut left_out);
    let past = state.keyspaces.keys().last().map_or(0, |id| id + 1);
    state.next_keyspace_id = state.next_keyspace_id.max(past);
    let segments = Segments {
        fs: &**fs,
        folder,
        store_id,
        named: &[],
        secrets: &BTreeMap::new(),
        floor: 0,
        on_disk: &logs,
        written: None,
    };
    let segments = segments.without_manifest();
    unreadable.retain(|id, _| !replaced.contains(id));
    let loaded = Loaded {
        state,
        end: Position::default(),
        secret: 0,
        edits: 0,
        first_bytes: 0,
        is_durable: false,
        torn: None,
        torn_bytes: 0,
    };
    Ok(Some(Rebuilt {
        loaded,
        segments,
        dropped,
        left_out,
        unknown: unreadable.into_values().collect(),
    }))
}

/// Of two keyspaces with one name the older one was dropped.
fn leave_out_namesakes(state: &mut ManifestState, left_out: &mut u64) -> BTreeSet<u64> {
    let mut names = BTreeSet::new();
    let ids: Vec<u64> = state.keyspaces.keys().rev().copied().collect();
    let mut dropped = BTreeSet::new();
    for id in ids {
        let known = &state.keyspaces[&id];
        if !names.insert(known.name.clone()) {
            *left_out += known.tables.len() as u64;
            state.keyspaces.remove(&id);
            dropped.insert(id);
        }
    }
    dropped
}

struct Found {
    table: FoundTable,
    origin: Box<TableOrigin>,
    bytes: u64,
}

fn read(files: &TableFiles, folder: &Path, id: u64) -> Result<Found> {
    let path = FileName::Table(id).path(folder);
    let source = files.source_once(&path).map_err(|error| Error::io("open", &path, error))?;
    let table = FoundTable::read(&source, id).map_err(|error| table_error(&path, error))?;
    let missing =
        || Error::corrupt(&path, 0, Corruption::Missing { what: "keyspace of the table" });
    let origin = table.properties.origin.clone().ok_or_else(missing)?;
    Ok(Found { table, origin, bytes: source.len() })
}

/// The store that most of the tables belong to, or the newest readable segment of the log.
fn store_id(
    fs: &dyn Fs,
    folder: &Path,
    tables: &BTreeMap<u64, Found>,
    logs: &[u64],
) -> Result<Option<u128>> {
    let mut counts = BTreeMap::<u128, u64>::new();
    for found in tables.values() {
        *counts.entry(found.table.store_id).or_default() += 1;
    }
    if let Some((&store_id, _)) = counts.iter().max_by_key(|(_, count)| **count) {
        return Ok(Some(store_id));
    }
    for &id in logs.iter().rev() {
        let path = FileName::Log(id).path(folder);
        let mut bytes = [0; HEADER_BYTES];
        let read = fs.open(&path).and_then(|file| file.read_at(&mut bytes, 0));
        match read.map_err(|error| Error::io("read", &path, error)) {
            Ok(_) => match FileHeader::decode(&bytes) {
                Ok(header) if header.kind == FileKind::Log && header.file_id == id => {
                    return Ok(Some(header.store_id));
                }
                _ => {}
            },
            Err(error) => check_lost(&error)?,
        }
    }
    Ok(None)
}

fn meta(id: u64, bytes: u64, found: &FoundTable, origin: &TableOrigin) -> TableMeta {
    let properties = &found.properties;
    TableMeta {
        id,
        level: origin.level,
        run: id,
        bytes,
        checksum: 0,
        salt: found.salt,
        // The seed of their hashes is lost.
        filter: None,
        prefix_filter: None,
        range_filter: None,
        global_sequence: None,
        bounds: properties.bounds.clone(),
        entries: properties.entries(),
        tombstones: properties.tombstones(),
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
        oldest_expiry_ms: None,
        blob_files: Vec::new(),
    }
}
