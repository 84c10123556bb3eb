//! Rebuilds the state of a lost manifest from tables and log.
//!
//! Each table names its keyspace with its options. The last table of a flush or compaction lists
//! the obsolete tables: its inputs, and tables that were replaced or dropped before and not yet
//! unlinked. Those are omitted: an input beside its output would restore keys whose tombstone was
//! dropped at the bottom. The list of an omitted table does not count: its compaction may have
//! failed after the table was written.
//!
//! A table without entries, with keyspace id 0, only has such a list. It is durable before tables
//! are unlinked that no installed table lists, and unlinked afterwards. On a full disk it is
//! omitted. Log entries up to the `flushed` of a table are skipped, unless the table is omitted.
//!
//! A table that was not the last of its group may exist beside all of its inputs. It adds nothing:
//! the entry with the largest sequence number counts, in whichever table.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use sievedb_format::{
    Corruption, FileHeader, FileKind, SEQUENCE_MAX, SequenceNumber, file_header::HEADER_BYTES,
};
use sievedb_sstable::{TableMetadata, TableOrigin};

use super::{
    keyspaces::{DEFAULT_ID, Namesakes},
    log_changes::LogChanges,
    lost::{check_lost, lost_as_none},
};
use crate::{
    Error, Result,
    file_name::FileName,
    fs::Fs,
    log::Position,
    manifest::{KeyspaceState, ManifestState, load::Loaded},
    table::{TableMeta, files::TableFiles, table_error},
    wal::{chain::Segments, replay::replay_readable, segment::segment_ids},
};

pub(super) struct Rebuilt {
    pub(super) loaded: Loaded,
    /// Logs, oldest first.
    pub(super) logs: Vec<FoundLog>,
    /// Keyspaces without a relevant table, by id. They were dropped, or all their data is in the
    /// log.
    pub(super) emptied: BTreeMap<u64, Arc<KeyspaceState>>,
    pub(super) namesakes: Namesakes,
    /// Changes of keyspaces in the logs.
    pub(super) changes: LogChanges,
    /// Number of obsolete tables.
    pub(super) left_out: u64,
    /// Errors of unreadable tables without further information.
    pub(super) unknown: Vec<Error>,
    /// Ids of ingested tables with an unknown sequence number.
    pub(super) unordered: BTreeSet<u64>,
}

/// A log, one of several if no manifest lists the valid segments.
pub(super) struct FoundLog {
    /// Ids of its segments, ascending.
    pub(super) ids: Vec<u64>,
    /// `true` if later segments are missing: obsolete or lost. They may have changed entries of the
    /// log.
    pub(super) is_cut: bool,
}

/// Returns `None` if there are no tables and no log of one store.
///
/// # Errors
///
/// [`Error::Io`] unrelated to the file, [`Error::NewerRelease`].
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

    let lists = tables.iter().map(|(&id, found)| (id, found.replaced())).collect();
    let replaced = replaced(&lists);
    let mut state = ManifestState::new(store_id, 0);
    let highest_first = tables.iter().rev();
    // Newest table of each keyspace.
    let mut newest = BTreeMap::new();
    let mut left_out = 0;
    for (&id, Found { table, origin, bytes }) in highest_first {
        if table.properties.entries() == 0 {
            // A list of obsolete tables.
            continue;
        }
        newest.entry(origin.keyspace).or_insert(id);
        // The newest table has the newest name and options.
        let known = state.keyspaces.entry(origin.keyspace).or_insert_with(|| {
            Arc::new(KeyspaceState {
                name: origin.name.to_string(),
                options: origin.options.to_vec(),
                ..KeyspaceState::default()
            })
        });
        let known = Arc::make_mut(known);
        if replaced.contains(&id) {
            left_out += 1;
            continue;
        }
        // Omitted tables do not count: their flush may have failed.
        let flushed = origin.completed.as_ref().map_or(0, |done| done.flushed);
        known.flushed = known.flushed.max(flushed);
        known.tables.insert(id, Arc::new(meta(id, *bytes, table, origin)));
    }
    let past = state.keyspaces.keys().last().map_or(0, |id| id + 1);
    state.next_keyspace_id = state.next_keyspace_id.max(past);
    let segments = Segments::unnamed(fs, folder, store_id, &logs);
    let mut logs = segments.without_manifest(check_lost)?;
    logs.retain(|ids| !ids.is_empty());
    let mut changes = LogChanges::default();
    let sequences = logs.iter().map(|ids| sequences(&segments, ids, &mut changes));
    let sequences: Vec<_> = sequences.collect::<Result<_>>()?;
    let unordered = number_ingested(&changes, &tables, &replaced, &mut state);
    apply(&changes, &tables, &mut state, &mut left_out);
    let namesakes = Namesakes::separate(&mut state, &changes, &newest);
    left_out += namesakes.left_out;
    // Older entries need no comparison with those of the log.
    let first = sequences.iter().flatten().map(|(first, _)| *first).min();
    let before = first.map_or(SEQUENCE_MAX, |first| first - 1);
    for known in state.keyspaces.values_mut() {
        let known = Arc::make_mut(known);
        known.flushed = known.flushed.max(before);
    }
    let of_tables = tables.values().map(|found| found.table.properties.largest_sequence);
    let logs = found_logs(&segments, logs, &sequences, of_tables.max().unwrap_or(0))?;
    let emptied = take_emptied(&mut state);
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
        logs,
        emptied,
        namesakes,
        changes,
        left_out,
        unknown: unreadable.into_values().collect(),
        unordered,
    }))
}

/// Assigns their sequence number to ingested tables, which store the one that was visible when the
/// ingest began. Returns the ids of those whose number is unknown.
///
/// The log has the numbers of tables. Tables have those of all earlier ingests into the keyspace.
/// The first one after the stored number is that of the ingest, unless two ingests were open at the
/// same time. If there is none, no table of the keyspace was written after the ingest.
fn number_ingested(
    changes: &LogChanges,
    tables: &BTreeMap<u64, Found>,
    replaced: &BTreeSet<u64>,
    state: &mut ManifestState,
) -> BTreeSet<u64> {
    let mut ingests = BTreeMap::<u64, BTreeSet<SequenceNumber>>::new();
    for (_, Found { origin, .. }) in tables.iter().filter(|(id, _)| !replaced.contains(id)) {
        ingests.entry(origin.keyspace).or_default().extend(&origin.ingests);
    }
    let mut unordered = BTreeSet::new();
    for (keyspace, known) in &mut state.keyspaces {
        let known = Arc::make_mut(known);
        for (&id, table) in &mut known.tables {
            let behind = (Bound::Excluded(table.largest_sequence), Bound::Unbounded);
            let is_ingested = tables[&id].origin.is_ingested;
            let listed = ingests.get(keyspace).filter(|_| is_ingested);
            let listed = listed.and_then(|ingests| ingests.range(behind).next().copied());
            let Some(sequence) = changes.ingested(id).or(listed) else {
                unordered.extend(is_ingested.then_some(id));
                continue;
            };
            let table = Arc::make_mut(table);
            table.global_sequence = Some(sequence);
            (table.smallest_sequence, table.largest_sequence) = (sequence, sequence);
        }
    }
    unordered
}

/// Names keyspaces as the log does, and omits tables from before a clear. A table has entries from
/// before a clear, or from after it, but not both.
fn apply(
    changes: &LogChanges,
    tables: &BTreeMap<u64, Found>,
    state: &mut ManifestState,
    left_out: &mut u64,
) {
    for (&id, known) in &mut state.keyspaces {
        let (known, cleared) = (Arc::make_mut(known), changes.cleared(id));
        if cleared > 0 {
            let all = known.tables.len();
            known.tables.retain(|_, table| is_after(cleared, tables, id, table));
            *left_out += (all - known.tables.len()) as u64;
            known.flushed = known.flushed.max(cleared);
        }
        if let Some(name) = changes.name(id) {
            name.clone_into(&mut known.name);
        }
    }
}

/// Returns `true` if a table of `keyspace` was written after the clear at `cleared`.
fn is_after(
    cleared: SequenceNumber,
    tables: &BTreeMap<u64, Found>,
    keyspace: u64,
    table: &TableMeta,
) -> bool {
    if table.largest_sequence > 0 {
        return table.largest_sequence > cleared;
    }
    // A compaction has dropped all sequence numbers. Its last table stores what was flushed before
    // it, and a clear counts as flushed.
    let of_keyspace = |found: &&Found| found.origin.keyspace == keyspace;
    let mut later = tables.range(table.id..).map(|(_, found)| found).filter(of_keyspace);
    let completed = later.find_map(|found| found.origin.completed.as_ref());
    completed.is_none_or(|completed| completed.flushed >= cleared)
}

/// Removes and returns the keyspaces without a relevant table, except the default one, which always
/// exists.
fn take_emptied(state: &mut ManifestState) -> BTreeMap<u64, Arc<KeyspaceState>> {
    let mut emptied = BTreeMap::new();
    state.keyspaces.retain(|&id, known| {
        let has_tables = !known.tables.is_empty() || id == DEFAULT_ID;
        if !has_tables {
            emptied.insert(id, Arc::clone(known));
        }
        has_tables
    });
    emptied
}

/// Returns the smallest and the largest sequence number of the batches in a log. Records its
/// changes of keyspaces.
///
/// # Errors
///
/// Those that are no damage. The copy of the log reports damage.
fn sequences(
    segments: &Segments<'_>,
    ids: &[u64],
    changes: &mut LogChanges,
) -> Result<Option<(SequenceNumber, SequenceNumber)>> {
    let mut found = None;
    let segments = Segments { named: ids, on_disk: ids, ..*segments };
    let replayed = replay_readable(&segments, Position::default(), |batch| {
        let last = batch.sequence + batch.batch.entries() - 1;
        found = Some((found.map_or(batch.sequence, |(first, _)| first), last));
        let entries = (batch.sequence..).zip(&batch.batch);
        let readable = entries.filter_map(|(sequence, entry)| Some((sequence, entry.ok()?)));
        readable.for_each(|(sequence, entry)| changes.note(sequence, &entry));
        Ok(())
    });
    lost_as_none(replayed)?;
    Ok(found)
}

/// Determines which logs are cut: those continued by newer ones, and those that end before the
/// largest sequence number of a table. Segments are removed oldest first. So either all of such a
/// log is obsolete or its end is lost.
///
/// A log without a previous segment is a copy by a recovery, which omits entries that tables have.
/// If it is unfinished, the previous log has no smaller numbers.
///
/// # Errors
///
/// As [`sequences`].
fn found_logs(
    segments: &Segments<'_>,
    logs: Vec<Vec<u64>>,
    sequences: &[Option<(SequenceNumber, SequenceNumber)>],
    of_tables: SequenceNumber,
) -> Result<Vec<FoundLog>> {
    // Largest sequence number of the newer logs, and newest missing segment.
    let (mut newest, mut missing) = (0, 0);
    let mut found = Vec::with_capacity(logs.len());
    for (ids, sequences) in logs.into_iter().zip(sequences).rev() {
        let previous = ids.first().map_or(Ok(None), |&id| segments.previous_of(id));
        let previous = lost_as_none(previous)?.flatten();
        let known = if previous.is_some() { newest.max(of_tables) } else { newest };
        let is_before = ids.last().is_some_and(|&id| id < missing);
        let is_cut = sequences.is_some_and(|(_, last)| last < known || is_before);
        newest = newest.max(sequences.map_or(0, |(_, last)| last));
        missing = missing.max(previous.unwrap_or(0));
        found.push(FoundLog { ids, is_cut });
    }
    found.reverse();
    Ok(found)
}

/// A table that can be read.
pub(super) struct Found {
    table: TableMetadata,
    origin: Box<TableOrigin>,
    bytes: u64,
}

impl Found {
    pub(super) const fn store_id(&self) -> u128 {
        self.table.store_id
    }

    /// Returns the ids of tables that are obsolete if this table was installed.
    pub(super) fn replaced(&self) -> &[u64] {
        self.origin.completed.as_ref().map_or(&[], |done| &done.replaced)
    }
}

/// Returns the obsolete tables, by the ids that each table lists.
///
/// The list of an obsolete table does not count: its compaction may have failed after it was
/// written, so the tables in the list may be live.
fn replaced(lists: &BTreeMap<u64, &[u64]>) -> BTreeSet<u64> {
    // Number of valid lists that name each table.
    let mut names = BTreeMap::<u64, usize>::new();
    lists.values().copied().flatten().for_each(|&id| *names.entry(id).or_default() += 1);
    let mut counting: Vec<u64> =
        lists.keys().copied().filter(|id| !names.contains_key(id)).collect();
    let mut replaced = BTreeSet::new();
    while let Some(id) = counting.pop() {
        for &gone in lists[&id] {
            if !replaced.insert(gone) {
                continue;
            }
            for &named in lists.get(&gone).copied().unwrap_or_default() {
                let left = names.entry(named).or_default();
                *left = left.saturating_sub(1);
                if *left == 0 && lists.contains_key(&named) && !replaced.contains(&named) {
                    counting.push(named);
                }
            }
        }
    }
    replaced
}

pub(super) fn read(files: &TableFiles, folder: &Path, id: u64) -> Result<Found> {
    let path = FileName::Table(id).path(folder);
    let source = files.source_once(&path).map_err(|error| Error::io("open", &path, error))?;
    let table = TableMetadata::read(&source, id).map_err(|error| table_error(&path, error))?;
    let missing =
        || Error::corrupt(&path, 0, Corruption::Missing { what: "keyspace of the table" });
    let origin = table.properties.origin.clone().ok_or_else(missing)?;
    Ok(Found { table, origin, bytes: source.len() })
}

/// Returns the store id of most tables, or of the newest readable log segment.
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
        let read = lost_as_none(read.map_err(|error| Error::io("read", &path, error)))?;
        let header = read.and_then(|()| FileHeader::decode(&bytes).ok());
        let own = header.filter(|header| header.kind == FileKind::Log && header.file_id == id);
        if let Some(header) = own {
            return Ok(Some(header.store_id));
        }
    }
    Ok(None)
}

fn meta(id: u64, bytes: u64, found: &TableMetadata, origin: &TableOrigin) -> TableMeta {
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
        range_tombstones: properties.range_tombstones(),
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
        expiry: properties.expiry.clone(),
        blob_files: origin.blob_files.clone(),
        // Upper bound: a compaction measures the depth.
        blob_depth: origin.blob_files.len() as u64,
        written_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Ids = &'static [u64];
    type Lists = &'static [(u64, Ids)];

    #[test]
    fn n15_a_failed_compaction_hides_no_live_table() {
        let cases: [(Lists, Ids); 5] = [
            // 3 was not installed, because a later flush lists it.
            (&[(1, &[]), (2, &[]), (3, &[1, 2]), (4, &[3])], &[3]),
            // Ids do not order tables that are written concurrently.
            (&[(1, &[]), (2, &[]), (4, &[1, 2]), (3, &[4])], &[4]),
            // 3 was installed, and 1 is not unlinked yet.
            (&[(1, &[]), (3, &[1]), (4, &[1, 3])], &[1, 3]),
            // A removed table names nothing.
            (&[(1, &[]), (4, &[3])], &[3]),
            // 4 is valid again, because 5 is not.
            (&[(1, &[]), (4, &[1]), (5, &[4]), (6, &[5])], &[1, 5]),
        ];
        for (lists, want) in cases {
            let lists = lists.iter().copied().collect();
            assert_eq!(replaced(&lists), want.iter().copied().collect(), "{lists:?}");
        }
    }
}
