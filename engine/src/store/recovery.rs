//! Recovers a store from its manifest and log.
//!
//! [`read`] reads both and writes nothing. After a crash [`take_over`](super::take_over) makes the
//! replayed entries durable again, in one log segment and a new manifest, before the first write:
//! see [`rewrite_log`](super::writer::rewrite_log).
//!
//! After a clean close all of it is durable already: `CLOSED` vouches for the manifest, and the
//! synced mark in the manifest for the log. Then both are continued.
//!
//! In either case the replayed memtables become active, the manifest names their segments until
//! they are flushed, and new writes begin a new segment.
//!
//! A read-only store writes nothing: see [`read_only`](super::read_only).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use sievedb_format::SequenceNumber;

use crate::{
    Error, Options, Result,
    file_name::FileName,
    fs::Fs,
    listener::{Event, notify},
    log::Position,
    manifest::load::Loaded,
    manifest::{KeyspaceState, ManifestFile, ManifestState, VersionEdit, load},
    planted::PlantedBug,
    stats::OpeningStats,
    store::log_state::{LogState, Unflushed},
    table::cache_room::CacheRoom,
    wal::{
        chain::Segments,
        replay::{Replayed, ReplayedSegment, TornTail, replay},
        segment::segment_ids,
    },
};

/// Contents of a directory.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The present manifest, if it can be continued or the store is read-only.
    pub(super) kept: Option<Loaded>,
    /// State of the manifest.
    pub(super) state: ManifestState,
    /// Keyspaces that the log creates and drops.
    pub(super) edit: VersionEdit,
    /// Entries of the log.
    pub(super) memtables: Unflushed,
    pub(super) last_sequence: SequenceNumber,
    pub(super) next_file_id: u64,
    /// Segments of the log that was replayed, oldest first.
    pub(super) segments: Vec<ReplayedSegment>,
    /// Batches in them.
    pub(super) batches: u64,
    /// The log is known to be durable, and can be continued.
    pub(super) is_durable: bool,
    /// Blob files with values of these batches.
    pub(super) value_files: BTreeSet<u64>,
    /// The manifest lacks the tables of an ingest in the log.
    pub(super) lacks_ingest: bool,
    /// Segments of a recovery that did not finish.
    pub(super) aborted: Vec<u64>,
    /// The store's files in the directory.
    pub(super) names: Vec<String>,
    pub(super) room: Arc<CacheRoom>,
    /// Bytes truncated so far.
    pub(super) opening: OpeningStats,
}

/// Reads the manifest and the log in `folder`. Writes nothing.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Corrupt`] if the manifest or the log is damaged where it must be whole;
/// [`Error::NeedsFeature`] if the options of a keyspace need a feature that this build lacks.
pub(crate) fn read(options: &Options, folder: &Path) -> Result<Recovered> {
    read_in(options, folder, CacheRoom::of(options)?)
}

/// As [`read`], with the memory of an open store.
///
/// # Errors
///
/// As [`read`].
pub(super) fn read_in(options: &Options, folder: &Path, room: Arc<CacheRoom>) -> Result<Recovered> {
    let fs = &*options.fs;
    let names = fs.list(folder).map_err(|error| Error::io("list", folder, error))?;
    let files: Vec<_> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    let Some(loaded) = load(fs, folder)? else {
        return fresh(fs, folder, &files, names.clone(), room);
    };
    let mut log = LogState::new(options, &loaded.state, room.memory());
    for (&id, keyspace) in &loaded.state.keyspaces {
        let KeyspaceState { name, options: encoded, .. } = &**keyspace;
        log.note_options(id, name, encoded, |source| {
            let path = FileName::Manifest(loaded.end.file_id).path(folder);
            Error::corrupt(path, loaded.end.offset, source)
        })?;
    }
    let named: Vec<_> = loaded.state.logs.keys().copied().collect();
    let mut on_disk = segment_ids(&names);
    // A crash may have kept any obsolete segment.
    on_disk.retain(|&id| id >= loaded.state.log_floor);
    let store_id = loaded.state.store_id;
    let adopts = options.has_bug(PlantedBug::AdoptSegmentBelowFloor);
    let floor = if adopts { 0 } else { loaded.state.log_floor };
    let (named, on_disk) = (&*named, &*on_disk);
    let secrets = &loaded.state.logs;
    let fs = &options.fs;
    let segments = Segments { fs, folder, store_id, named, secrets, floor, on_disk, written: None };
    let replayed = replay(&segments, loaded.state.log_mark, |batch| log.apply(&batch))?;
    loaded.check_vouched(folder, replayed.manifest)?;
    // Before the first write, and not for keyspaces that the log drops.
    log.check_features()?;
    let opening = report_torn_tails(options, &loaded, replayed.torn.as_ref());
    let lacks_ingest = log.ingested() > loaded.state.last_sequence;
    let (edit, memtables) = log.into_parts();
    let is_durable = loaded.is_durable && replayed.is_durable(loaded.state.log_mark, named);
    let last_sequence = loaded.state.last_sequence.max(replayed.last_sequence);
    let next_file_id = above_all(&files).max(loaded.state.next_file_id);
    let state = loaded.state.clone();
    let kept = options.read_only
        || options.has_bug(PlantedBug::KeepAnyManifest)
        || ManifestFile::may_reopen(&loaded);
    let kept = kept.then_some(loaded);
    let Replayed { segments, aborted, batches, value_files, .. } = replayed;
    Ok(Recovered {
        kept,
        state,
        edit,
        memtables,
        last_sequence,
        next_file_id,
        segments,
        batches,
        is_durable,
        value_files,
        lacks_ingest,
        aborted,
        names,
        room,
        opening,
    })
}

/// Reports torn tails, and counts their bytes.
fn report_torn_tails(options: &Options, loaded: &Loaded, torn: Option<&TornTail>) -> OpeningStats {
    if options.follow {
        // A record that is being written.
        return OpeningStats::default();
    }
    let report = |event| options.listener.iter().for_each(|listener| notify(&**listener, &event));
    let mut opening = OpeningStats::default();
    if loaded.torn.is_some() {
        let (Position { file_id: manifest_id, offset }, bytes) = (loaded.end, loaded.torn_bytes);
        opening.manifest_bytes_cut = bytes;
        report(Event::TornManifest { manifest_id, offset, bytes });
    }
    if let Some(torn) = torn {
        opening.log_bytes_cut = torn.bytes;
        report(Event::TornTail { log_id: torn.position.file_id, offset: torn.position.offset });
    }
    opening
}

/// Returns the contents of a directory without `CURRENT`: new, or from an interrupted creation.
fn fresh(
    fs: &dyn Fs,
    folder: &Path,
    files: &[FileName<'_>],
    names: Vec<String>,
    room: Arc<CacheRoom>,
) -> Result<Recovered> {
    let random =
        || fs.random_u64().map_err(|error| Error::io("draw random numbers for", folder, error));
    let store_id = u128::from(random()?) << 64 | u128::from(random()?);
    let state = ManifestState::new(store_id, random()?);
    let next_file_id = above_all(files).max(state.next_file_id);
    Ok(Recovered {
        kept: None,
        state,
        edit: VersionEdit::default(),
        memtables: BTreeMap::new(),
        last_sequence: 0,
        next_file_id,
        segments: Vec::new(),
        batches: 0,
        is_durable: false,
        value_files: BTreeSet::new(),
        lacks_ingest: false,
        aborted: Vec::new(),
        names,
        room,
        opening: OpeningStats::default(),
    })
}

fn above_all(files: &[FileName<'_>]) -> u64 {
    files.iter().filter_map(|file| file.id()).max().map_or(0, |id| id + 1)
}
