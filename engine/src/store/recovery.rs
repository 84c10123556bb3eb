//! Recovers a store from its manifest and log.
//!
//! [`read`] reads both and writes nothing. After a crash [`take_over`] makes the replayed entries
//! durable again, in one log segment and a new manifest, before the first write:
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
    mem,
    path::Path,
    sync::Arc,
    time::Duration,
};

use sievedb_format::SequenceNumber;

use crate::{
    Error, Options, Result,
    clock::Clock,
    file_name::FileName,
    filters::Filters,
    fs::Fs,
    listener::{Event, notify},
    log::Position,
    manifest::load::Loaded,
    manifest::{KeyspaceState, ManifestFile, ManifestState, VersionEdit, load},
    open_files::OpenFiles,
    planted::PlantedBug,
    stats::OpeningStats,
    store::log_state::{LogState, Unflushed, begun_history, changed_options, corrupt_state},
    store::open_tables::open_tables,
    store::orphans::{unlink_orphans, unlink_unnamed},
    store::retained_logs::{changed_retention, keeps_changes},
    store::versions::keyspaces::KeyspaceTrees,
    store::writer::rewrite_log::{ReplayedLog, unlink_segment},
    table::cache_room::CacheRoom,
    table::store::TableStore,
    wal::{
        chain::Segments,
        replay::{Replayed, ReplayedSegment, TornTail, replay},
        segment::segment_ids,
    },
};

/// A log of more segments is rewritten as one at the opening: each opening may add a segment, and
/// each segment takes time to open.
const CONTINUED_SEGMENTS_MAX: usize = 64;

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
    batches: u64,
    /// The log is known to be durable, and can be continued.
    is_durable: bool,
    /// Blob files with values of these batches.
    pub(super) value_files: BTreeSet<u64>,
    /// The manifest lacks the tables of an ingest in the log.
    pub(super) lacks_ingest: bool,
    /// Segments of a recovery that did not finish.
    aborted: Vec<u64>,
    /// The store's files in the directory.
    names: Vec<String>,
    pub(super) room: Arc<CacheRoom>,
    /// Bytes truncated so far.
    pub(super) opening: OpeningStats,
}

/// A recovered store with open tables.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) manifest: ManifestFile,
    pub(crate) tables: TableStore,
    pub(crate) trees: KeyspaceTrees,
    pub(crate) last_sequence: SequenceNumber,
    /// Durable segments that the log continues, oldest first. The replayed ones of a read-only
    /// store.
    pub(crate) continued: Vec<ReplayedSegment>,
    /// Blob files with values of these segments, of a read-only store.
    pub(crate) value_files: BTreeSet<u64>,
    pub(crate) filters: Filters,
    /// Durations, without that of the log.
    pub(crate) opening: OpeningStats,
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

/// Opens the tables and makes what was recovered durable again. The caller holds the lock.
///
/// # Errors
///
/// [`Error::Io`]; [`Error::Corrupt`] if a table is damaged where it must be whole, or if it
/// requires a later release: then nothing was written or unlinked. After every error all that the
/// old manifest names is still there.
pub(crate) fn take_over(
    options: &Options,
    folder: &Path,
    recovered: Recovered,
    open_files: Arc<OpenFiles>,
) -> Result<Beginning> {
    let Recovered { kept, mut state, mut edit, memtables, last_sequence, .. } = recovered;
    let Recovered { next_file_id, names, segments, batches, is_durable, aborted, .. } = recovered;
    let Recovered { value_files, room, mut opening, .. } = recovered;
    let mut stopwatch = Stopwatch::start(&*options.clock);
    let (fs, store_id, hash_seed) = (&*options.fs, state.store_id, state.hash_seed);
    let tables =
        TableStore::new(options, folder, store_id, hash_seed, next_file_id, room, open_files);
    if let Some(begun) = begun_history(options, &state, &edit, last_sequence) {
        // The clock may return to the last one stored: the history would begin in the future.
        edit.store_clock_ms = Some(begun.1.clock_ms);
        edit.history_from.push(begun);
    }
    edit.keyspaces_changed.extend(changed_options(options, &state, &edit));
    let mut replayed = state.clone();
    replayed.apply(&edit).map_err(|source| corrupt_state(folder, source))?;
    // Before the first write or unlink: a table may require a later release.
    let opened = open_tables(options, &tables, folder, &replayed)?;
    opening.tables = stopwatch.lap();
    opening.threads = opened.threads;
    unlink_unnamed(&tables, &names, state.next_file_id, (&aborted, &value_files))?;
    let known_end = kept.as_ref().map(|loaded| loaded.end);
    let manifest = known_end
        .unwrap_or_else(|| Position { file_id: tables.new_file_id(), ..Position::default() });
    // The rewritten log has the values: no file is kept for a log of an earlier opening.
    let continues =
        is_durable && segments.len() <= CONTINUED_SEGMENTS_MAX && value_files.is_empty();
    let mut rewritten = None;
    edit.retention_changed = changed_retention(options, &state, last_sequence);
    if !continues {
        let keeps_all = keeps_changes(&state, edit.retention_changed.as_ref());
        if !memtables.is_empty() || (keeps_all && batches > 0) {
            let (state, segments, memtables) = (&state, &*segments, &memtables);
            let compresses = options.log_compression;
            let fs = &options.fs;
            let log = ReplayedLog { fs, folder, state, segments, memtables, keeps_all, compresses };
            rewritten = Some(log.rewrite(tables.new_file_id(), manifest)?);
        }
        // The old log is dropped.
        edit.last_sequence = Some(last_sequence).filter(|&last| last > state.last_sequence);
    }
    let unlink_rewritten = || {
        rewritten.iter().for_each(|(segment, _)| unlink_segment(fs, folder, segment.id));
    };
    opening.replayed = stopwatch.lap();
    let is_changed = edit != VersionEdit::default()
        || (!continues && !state.logs.is_empty())
        || tables.next_file_id() > state.next_file_id;
    if is_changed {
        if let Some((ReplayedSegment { id, bytes, .. }, secret)) = rewritten {
            edit.logs_created.push((id, secret));
            edit.log_mark = Some(Position { file_id: id, offset: bytes });
        }
        if !continues {
            // Drops all older segments. Later ones have higher ids.
            let floor = rewritten.map(|(segment, _)| segment.id);
            edit.log_floor = Some(floor.unwrap_or_else(|| tables.new_file_id()));
        }
        edit.next_file_id = Some(tables.next_file_id());
    }
    let applied = state.apply(&edit).map_err(|source| corrupt_state(folder, source));
    applied.inspect_err(|_| unlink_rewritten())?;

    let manifest_id = manifest.file_id;
    if options.has_bug(PlantedBug::DeleteOrphansEarly) {
        unlink_orphans(&tables, &names, &state, manifest_id)?;
    }
    let (trees, filters) = opened.into_trees(options, &tables, last_sequence);
    trees.set_replayed(&memtables);
    opening.filters = stopwatch.lap();
    let (shared_fs, folder_path) = (Arc::clone(&options.fs), folder.to_owned());
    let manifest = match kept {
        None => {
            let created = ManifestFile::create(shared_fs, folder_path, manifest_id, state);
            created.inspect_err(|error| {
                if error.is_passing() {
                    // The old manifest is still the present one.
                    unlink_rewritten();
                }
            })?
        }
        Some(loaded) => {
            let mut manifest = ManifestFile::reopen(shared_fs, folder_path, loaded)?;
            if is_changed {
                let _ = manifest.append(&edit, || tables.new_file_id())?;
            }
            manifest
        }
    };
    opening.manifest = stopwatch.lap();
    let manifest_id = manifest.position().file_id;
    unlink_orphans(&tables, &names, manifest.state(), manifest_id)?;
    let rewritten = rewritten.map(|(segment, _)| segment);
    let continued = if continues { segments } else { rewritten.into_iter().collect() };
    let value_files = BTreeSet::new();
    Ok(Beginning {
        manifest,
        tables,
        trees,
        last_sequence,
        continued,
        value_files,
        filters,
        opening,
    })
}

/// Measures the duration of each part.
pub(super) struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    last: Duration,
}

impl<'a> Stopwatch<'a> {
    pub(super) fn start(clock: &'a dyn Clock) -> Self {
        Self { clock, last: clock.now() }
    }

    /// Returns the time since the start, or since the last call.
    pub(super) fn lap(&mut self) -> Duration {
        let now = self.clock.now();
        now.saturating_sub(mem::replace(&mut self.last, now))
    }
}
