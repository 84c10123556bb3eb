//! Verifies every byte of a store: manifest, log, tables, filters.
//!
//! Reads past the block cache, writes nothing, and does not stop at the first problem.

use std::{borrow::Cow, collections::BTreeSet, path::Path, sync::Arc};

use sievedb_format::Corruption;

use crate::{
    Error, Options, Result, VerifyReport,
    file_name::FileName,
    fs::{Fs, existing},
    log::Position,
    manifest::{ManifestState, load, load::Loaded},
    read::view::KeptView,
    stats::Counters,
    store::{
        Store,
        folder::{lock_to_read, refused},
        verify_changes::verify_changes_of,
        verify_table::{TableVerifier, VerifiedTable},
    },
    table::{TableMeta, files::TableFiles},
    verify_report::{
        VerifyProblem,
        VerifyProblemKind::{FilterUnusable, FilterWrong},
        VerifyProgress,
    },
    wal::{
        chain::Segments,
        replay::{Replayed, TornTail, replay},
        segment::segment_ids,
    },
};

impl Store {
    /// Verifies every byte of the store. Writes may continue. Lifts the quarantine of tables that
    /// are good.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be listed; [`Error::Closed`] once the store is being
    /// closed. The report lists damage.
    pub(crate) fn verify(
        &self,
        on_progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<VerifyReport> {
        self.check_own_files()?;
        // Only the versions: memtables must not be kept in memory.
        let trees: Vec<_> = self.versions.trees().values().cloned().collect();
        let versions: Vec<_> = trees
            .iter()
            .map(|tree| {
                let KeptView { version, .. } = tree.kept_view();
                (tree.name(), version)
            })
            .collect();
        let metas = versions.iter().flat_map(|(_, version)| version.metas());
        let bytes = metas.map(|meta| meta.bytes);
        let bytes_all = 2 * bytes.sum::<u64>();
        let mut report = VerifyReport::default();
        self.verify_logs(&mut report)?;
        self.verify_changes(&mut report)?;
        let tables = &self.tables;
        let is_cancelled = || tables.is_closing();
        let counters = Arc::clone(&tables.counters);
        let mut verifier = TableVerifier {
            blob_sources: TableFiles::few_at_once(Arc::clone(&tables.fs), Arc::clone(&counters)),
            files: TableFiles::one_by_one(Arc::clone(&tables.fs), counters),
            folder: &tables.folder,
            store_id: tables.store_id,
            hash_seed: tables.hash_seed,
            prefix_functions: &self.options.prefix_functions,
            report,
            bytes_all,
            bytes_done: 0,
            blob_files: BTreeSet::new(),
            on_progress,
            is_cancelled: &is_cancelled,
        };
        let mut lifts = false;
        for (keyspace, version) in &versions {
            for (level, run, live) in version.tables() {
                let problems = verifier.report.problems.len();
                let present = || live.present_meta(level, run);
                let meta = &live.meta;
                verifier.table(VerifiedTable {
                    keyspace,
                    meta,
                    present: &present,
                    live: Some(live),
                });
                let Some(quarantined) = live.quarantined(keyspace, level) else { continue };
                let mut found = verifier.report.problems[problems..].iter();
                // Compactions do not read filters.
                let pauses = |problem: &VerifyProblem| {
                    *problem.path == *live.path
                        && !matches!(problem.kind, FilterUnusable | FilterWrong)
                };
                if found.any(pauses) || is_cancelled() {
                    verifier.report.quarantined.push(quarantined);
                } else {
                    live.quarantine.lift();
                    lifts = true;
                }
            }
        }
        // A table that was not read whole may be damaged.
        tables.check_not_closing()?;
        if lifts {
            self.scheduler.look_at_all();
        }
        Ok(verifier.report)
    }

    /// Verifies the manifest, and the log up to its present end, under the lock of the manifest:
    /// all files that it names exist.
    fn verify_logs(&self, report: &mut VerifyReport) -> Result<()> {
        let (fs, folder) = (&self.tables.fs, &*self.tables.folder);
        // Before the lock of the manifest, by the lock order.
        let written = (!self.options.read_only).then(|| self.writer.log().written_to());
        self.versions.read_manifest(|manifest| {
            let names = list(&**fs, folder)?;
            match load(&**fs, folder) {
                Ok(Some(loaded)) => {
                    // After a full disk the file may have an edit more.
                    if !manifest.needs_new_file() && loaded.state != *manifest.state() {
                        let path = FileName::Manifest(loaded.end.file_id).path(folder);
                        let what = "state that the manifest recreates";
                        let source = Corruption::Order { what };
                        report.error(&Error::corrupt(path, loaded.end.offset, source));
                    }
                    verify_log(fs, folder, &names, &loaded, written, report, &|| {
                        self.tables.check_not_closing()
                    });
                }
                Ok(None) => report.error(&current_is_missing(folder)),
                Err(error) => report.error(&error),
            }
            Ok(())
        })
    }
}

/// Verifies every byte of the store in `folder`, under a shared lock that excludes writers.
///
/// # Errors
///
/// [`Error::NoStore`]; [`Error::NotADirectory`]; [`Error::Locked`]; [`Error::NewerRelease`];
/// [`Error::Io`] if the directory cannot be locked or listed.
pub(crate) fn verify_folder(
    options: &Options,
    folder: &Path,
    on_progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport> {
    let files = options.stored_fs(Arc::clone(&options.fs));
    let fs = &files.logical();
    check_traces(&**fs, folder)?;
    files.check(folder).map_err(|(path, error)| Error::io("open", path, error))?;
    let _lock = lock_to_read(&**fs, folder)?;
    let names = list(&**fs, folder)?;
    let mut report = VerifyReport::default();
    let loaded = load(&**fs, folder).and_then(|it| it.ok_or_else(|| current_is_missing(folder)));
    let loaded = match loaded.map_err(Error::of_opening) {
        Ok(loaded) => loaded,
        Err(error @ (Error::NewerRelease { .. } | Error::Encrypted { .. })) => return Err(error),
        Err(error) => {
            report.error(&error);
            report.without_manifest = true;
            return Ok(report);
        }
    };
    if let Some(reason) = &loaded.torn {
        let path = FileName::Manifest(loaded.end.file_id).path(folder);
        report.torn_tail(path, loaded.end.offset, loaded.torn_bytes, reason);
    }
    let replayed = verify_log(fs, folder, &names, &loaded, None, &mut report, &|| Ok(()));
    if let Some(TornTail { position, bytes, reason }) = replayed.and_then(|found| found.torn) {
        let path = FileName::Log(position.file_id).path(folder);
        report.torn_tail(path, position.offset, bytes, &reason);
    }
    let state = &loaded.state;
    verify_changes_of(fs, folder, state, &mut report);
    let metas = state.keyspaces.values().flat_map(|keyspace| {
        keyspace.tables.values().map(|meta| (keyspace.name.as_str(), &**meta))
    });
    let bytes = metas.clone().fold(0, |sum: u64, (_, meta)| sum.saturating_add(meta.bytes));
    let counters = Arc::<Counters>::default();
    let mut verifier = TableVerifier {
        blob_sources: TableFiles::few_at_once(Arc::clone(fs), Arc::clone(&counters)),
        files: TableFiles::one_by_one(Arc::clone(fs), counters),
        folder,
        store_id: state.store_id,
        hash_seed: state.hash_seed,
        prefix_functions: &options.prefix_functions,
        report,
        bytes_all: bytes.saturating_mul(2),
        bytes_done: 0,
        blob_files: BTreeSet::new(),
        on_progress,
        is_cancelled: &|| false,
    };
    for (keyspace, meta) in metas {
        let meta: &TableMeta = meta;
        let present = || Cow::Borrowed(meta);
        verifier.table(VerifiedTable { keyspace, meta, present: &present, live: None });
    }
    Ok(verifier.report)
}

/// Refuses a directory without files of a store.
pub(crate) fn check_traces(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let names = existing(fs.list(folder));
    let names = names.map_err(|error| refused("list", folder, folder, error))?;
    let is_of_store = |name: &String| match FileName::parse(name) {
        None
        | Some(FileName::Closed | FileName::Lock | FileName::Stats | FileName::Temporary(_)) => {
            false
        }
        Some(_) => true,
    };
    match names.unwrap_or_default().iter().any(is_of_store) {
        true => Ok(()),
        false => Err(Error::NoStore { path: folder.to_owned() }),
    }
}

pub(crate) fn current_is_missing(folder: &Path) -> Error {
    let path = FileName::Current.path(folder);
    Error::corrupt(path, 0, Corruption::Missing { what: "CURRENT" })
}

pub(crate) fn list(fs: &dyn Fs, folder: &Path) -> Result<Vec<String>> {
    fs.list(folder).map_err(|error| Error::io("list", folder, error))
}

/// Returns the segments of the log that must exist, and those that may be part of it.
pub(crate) fn segments_of(state: &ManifestState, names: &[String]) -> (Vec<u64>, Vec<u64>) {
    let named = state.logs.keys().copied().collect();
    let mut on_disk = segment_ids(names);
    on_disk.retain(|&id| id >= state.log_floor);
    (named, on_disk)
}

/// Reads the log as recovery does, until `check_needed` fails. Returns the result if the log is
/// good, possibly with a torn tail.
///
/// Reads nothing behind `written`: zeros read before a concurrent append, followed by records read
/// after it, would look like damage.
fn verify_log(
    fs: &Arc<dyn Fs>,
    folder: &Path,
    names: &[String],
    loaded: &Loaded,
    written: Option<Position>,
    report: &mut VerifyReport,
    check_needed: &dyn Fn() -> Result<()>,
) -> Option<Replayed> {
    let state = &loaded.state;
    let (mut named, mut on_disk) = segments_of(state, names);
    if let Some(Position { file_id: newest, .. }) = written {
        named.retain(|&id| id <= newest);
        on_disk.retain(|&id| id <= newest);
    }
    let store_id = state.store_id;
    let (named, floor, on_disk) = (&*named, state.log_floor, &*on_disk);
    let secrets = &state.logs;
    let segments = Segments { fs, folder, store_id, named, secrets, floor, on_disk, written };
    // The mark may have risen since.
    let mark = written.map_or(state.log_mark, |written| state.log_mark.min(written));
    let replayed = replay(&segments, mark, |replayed| {
        check_needed()?;
        let read = replayed.batch.into_iter().try_for_each(|entry| entry.map(drop));
        read.map_err(|source| replayed.corrupt(source))
    });
    let checked = replayed.and_then(|replayed| {
        report.log_batches += replayed.batches;
        loaded.check_vouched(folder, replayed.manifest).map(|()| replayed)
    });
    checked.inspect_err(|error| report.error(error)).ok()
}
