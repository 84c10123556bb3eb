//! Looks at every byte of a table and of its filters.

use std::{io, ops::ControlFlow, path::Path, sync::Arc};

use sievedb_filter::{FilterArena, TableFilter, key_hash};
use sievedb_format::{Corruption, annotation::printable};
use sievedb_sstable::{
    BlockCache, FilterState, FilterUnusable, PrefixFunction, Table, TableSource, file_checksum,
};

use crate::{
    Error, VerifyReport,
    file_name::FileName,
    store::verify_scan_filters::ScanFilterCheck,
    table::{FilterPlace, TableMeta, files::TableFiles, filters::with_cause, table_error},
    verify_report::{VerifyProblem, VerifyProblemKind, VerifyProgress},
};

/// Looks at tables, and collects what it finds.
pub(crate) struct TableVerifier<'a> {
    pub(crate) files: TableFiles,
    pub(crate) folder: &'a Path,
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    /// Of the extractors that prefix filters were built with.
    pub(crate) prefix_functions: &'a [Arc<dyn PrefixFunction>],
    pub(crate) report: VerifyReport,
    pub(crate) bytes_all: u64,
    pub(crate) bytes_done: u64,
    pub(crate) on_progress: &'a mut dyn FnMut(VerifyProgress),
}

/// A filter and the keys of its table that it rules out.
struct Asked<'a> {
    filter: &'a TableFilter,
    missing: u64,
    /// The first of them, for people.
    first: Option<String>,
}

impl<'a> Asked<'a> {
    fn new(filter: &'a TableFilter) -> Self {
        Self { filter, missing: 0, first: None }
    }

    fn ask(&mut self, key: &[u8], hash: u64) {
        if !self.filter.may_contain_hash(hash) {
            self.missing += 1;
            self.first.get_or_insert_with(|| printable(key));
        }
    }
}

impl TableVerifier<'_> {
    /// Looks at the table `meta`. `place` says where its filter lies at present; `in_memory` is what
    /// lookups ask, if the store is open.
    pub(crate) fn table(
        &mut self,
        meta: &TableMeta,
        place: &dyn Fn() -> Option<FilterPlace>,
        in_memory: Option<&FilterState>,
    ) {
        let path = FileName::Table(meta.id).path(self.folder);
        self.report.tables += 1;
        self.report.table_bytes += meta.bytes;
        let source = match self.files.source_once(&path) {
            Ok(source) => source,
            Err(error) => return self.report.error(&Error::io("open", &path, error)),
        };
        self.whole_file(meta, &path, &*source);
        let stored = self.filter(meta, place, &source);
        let mut asked: Vec<_> = [Some(&stored), in_memory]
            .into_iter()
            .flatten()
            .filter_map(|state| state.resident().map(Asked::new))
            .collect();
        self.blocks(meta, &path, &source, &mut asked);
        for Asked { missing, first, .. } in asked {
            if let Some(first) = first {
                let place = place();
                let file = place.map_or(meta.id, |place| place.file_id);
                let message = format!("the filter rules out {missing} of its keys, first {first}");
                self.report.problems.push(VerifyProblem {
                    kind: VerifyProblemKind::FilterWrong,
                    path: self.filter_path(meta, file),
                    offset: place.map_or(0, |place| place.offset),
                    message,
                });
            }
        }
    }

    fn progress(&mut self, bytes: u64) {
        self.bytes_done += bytes;
        let (bytes_done, bytes_all) = (self.bytes_done, self.bytes_all);
        (self.on_progress)(VerifyProgress { bytes_done, bytes_all });
    }

    fn whole_file(&mut self, meta: &TableMeta, path: &Path, source: &dyn TableSource) {
        let found = file_checksum(source, &mut |bytes| {
            self.progress(bytes);
            ControlFlow::Continue(())
        });
        match found {
            Ok(found) if found == meta.checksum => {}
            Ok(computed) => {
                let what = "whole table";
                let source = Corruption::Checksum { what, stored: meta.checksum, computed };
                self.report.error(&Error::corrupt(path, 0, source));
            }
            Err(error) => self.report.error(&Error::io("read", path, error)),
        }
    }

    /// Loads the filter, and reports one that cannot be used.
    fn filter(
        &mut self,
        meta: &TableMeta,
        place: &dyn Fn() -> Option<FilterPlace>,
        table: &Arc<dyn TableSource>,
    ) -> FilterState {
        loop {
            let at = place();
            let state = self.load(meta, at, &**table);
            // Another one may have taken its place, and its file be gone.
            if !matches!(state, FilterState::Unusable(_)) || place() == at {
                self.report.filters += u64::from(at.is_some());
                if let (FilterState::Unusable(reason), Some(at)) = (&state, at) {
                    self.report.problems.push(VerifyProblem {
                        kind: VerifyProblemKind::FilterUnusable,
                        path: self.filter_path(meta, at.file_id),
                        offset: at.offset,
                        message: format!("filter of table {}: {}", meta.id, with_cause(reason)),
                    });
                }
                return state;
            }
        }
    }

    fn load(
        &self,
        meta: &TableMeta,
        place: Option<FilterPlace>,
        table: &dyn TableSource,
    ) -> FilterState {
        let identity = meta.identity(self.store_id, self.hash_seed);
        let Some(place) = place else { return FilterState::None };
        let arena = FilterArena::heap();
        if place.file_id == meta.id {
            return FilterState::load(table, &identity, Some(place.into()), &arena);
        }
        match self.files.source_once(&self.filter_path(meta, place.file_id)) {
            Ok(source) => {
                FilterState::load_file(&*source, &identity, place.file_id, place.into(), &arena)
            }
            Err(error) => FilterState::Unusable(FilterUnusable::Io(error)),
        }
    }

    fn filter_path(&self, meta: &TableMeta, file_id: u64) -> std::path::PathBuf {
        let is_own = file_id == meta.id;
        let name = if is_own { FileName::Table(file_id) } else { FileName::Filter(file_id) };
        name.path(self.folder)
    }

    /// Reads every block, and asks the filters for every key.
    fn blocks(
        &mut self,
        meta: &TableMeta,
        path: &Path,
        source: &Arc<dyn TableSource>,
        asked: &mut [Asked<'_>],
    ) {
        let identity = meta.identity(self.store_id, self.hash_seed);
        let nothing_kept = Arc::new(BlockCache::new(0));
        let table = match Table::open(Arc::clone(source), identity, meta.bytes, nothing_kept) {
            Ok(table) => table,
            Err(error) => return self.report.error(&table_error(path, error)),
        };
        for source in differences(meta, &table) {
            self.report.error(&Error::corrupt(path, 0, source));
        }
        let (seed, mut probes) = (self.hash_seed, 0);
        let (file, functions) = ((&**source, identity), self.prefix_functions);
        let mut scans = ScanFilterCheck::new(meta, path, file, &table, functions, &mut self.report);
        let verified = table.verify(&mut |key| {
            let hash = key_hash(key, seed);
            probes += asked.len() as u64;
            asked.iter_mut().for_each(|asked| asked.ask(key, hash));
            probes += scans.ask(key);
        });
        scans.finish(&mut self.report);
        self.report.filter_probes += probes;
        self.report.entries += verified.entries;
        for problem in verified.problems {
            self.report.error(&table_error(path, problem));
        }
        self.progress(meta.bytes);
    }
}

/// In what a table contradicts the manifest.
fn differences(meta: &TableMeta, table: &Table) -> Vec<Corruption> {
    let properties = table.properties();
    let numbers = [
        ("entries in the manifest", meta.entries, properties.entries()),
        ("tombstones in the manifest", meta.tombstones, properties.tombstones()),
        (
            "smallest sequence number in the manifest",
            meta.smallest_sequence,
            properties.smallest_sequence,
        ),
        (
            "largest sequence number in the manifest",
            meta.largest_sequence,
            properties.largest_sequence,
        ),
    ];
    let differ = numbers.into_iter().filter(|(_, said, found)| said != found);
    let mut differences: Vec<_> = differ
        .map(|(what, expected, found)| Corruption::Mismatch { what, expected, found })
        .collect();
    if (&meta.smallest, &meta.largest) != (&properties.smallest, &properties.largest) {
        differences.push(Corruption::Order { what: "bounds in the manifest" });
    }
    differences
}

/// The error of a file that should be there.
pub(crate) fn not_there(path: &Path) -> Error {
    Error::io("open", path, io::ErrorKind::NotFound.into())
}
