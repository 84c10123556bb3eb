//! Verification of every byte of a table and of its filters.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    io,
    ops::{Bound, ControlFlow},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use sievedb_format::Corruption;
use sievedb_sstable::{
    BlockCache, PrefixFunction, Table, TableProblem, TableSource, damaged_filters, file_checksum,
};

use crate::{
    Error, VerifyReport,
    file_name::FileName,
    filters::{FilterChecks, FilterOwner},
    table::{LiveTable, TableMeta, files::TableFiles, table_error},
    verify_report::VerifyProgress,
};

/// Keys between two checks whether the result is still needed.
const KEYS_UNCHECKED_MAX: u64 = 1 << 10;

/// Verifies tables, and collects problems.
pub(crate) struct TableVerifier<'a> {
    pub(crate) files: TableFiles,
    /// Opens blob files, of which a table may have many.
    pub(crate) blob_sources: TableFiles,
    pub(crate) folder: &'a Path,
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    /// Functions of the extractors that prefix filters were built with.
    pub(crate) prefix_functions: &'a [Arc<dyn PrefixFunction>],
    pub(crate) report: VerifyReport,
    pub(crate) bytes_all: u64,
    pub(crate) bytes_done: u64,
    /// Ids of the blob files that were verified.
    pub(crate) blob_files: BTreeSet<u64>,
    pub(crate) on_progress: &'a mut dyn FnMut(VerifyProgress),
    /// Returns whether to skip the rest.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
}

/// A table to verify.
#[derive(Clone, Copy)]
pub(crate) struct VerifiedTable<'a, 'm> {
    /// Name of its keyspace.
    pub(crate) keyspace: &'a str,
    pub(crate) meta: &'a TableMeta,
    /// Returns its present metadata in the manifest: a filter may be replaced at any time.
    pub(crate) present: &'a dyn Fn() -> Cow<'m, TableMeta>,
    /// The table that lookups read, if the store is open.
    pub(crate) live: Option<&'a LiveTable>,
}

impl TableVerifier<'_> {
    /// Verifies a table and its filters.
    pub(crate) fn table(&mut self, table: VerifiedTable<'_, '_>) {
        if (self.is_cancelled)() {
            return;
        }
        let first = self.report.problems.len();
        self.look_at(table);
        for problem in &mut self.report.problems[first..] {
            problem.keyspace = Some(table.keyspace.to_owned());
        }
    }

    fn look_at(&mut self, table: VerifiedTable<'_, '_>) {
        let meta = table.meta;
        let path = FileName::Table(meta.id).path(self.folder);
        self.report.tables += 1;
        self.report.table_bytes += meta.bytes;
        let source = match self.files.source_once(&path) {
            Ok(source) => source,
            Err(error) => {
                let error = match error.kind() {
                    io::ErrorKind::NotFound => {
                        Error::corrupt(&path, 0, Corruption::Missing { what: "table" })
                    }
                    _ => Error::io("open", &path, error),
                };
                return self.report.error_of_keys(&error, Some(all_keys(meta)));
            }
        };
        let first = self.report.problems.len();
        let has_other_bytes = self.has_other_bytes(meta, &path, &*source);
        let used = self.blocks(table, &path, &source);
        let Some(difference) = has_other_bytes else { return };
        if self.report.problems[first..].iter().any(|problem| problem.path == path) {
            // The other problems are more precise.
            return;
        }
        // No lookup reads a filter that was replaced.
        let unused = used.map_or(0, |used| {
            let identity = meta.identity(self.store_id, self.hash_seed);
            damaged_filters(&source, &identity, &used).unwrap_or(0)
        });
        if unused > 0 {
            self.report.unused_filters_damaged += unused;
        } else {
            self.report.error(&Error::corrupt(path, 0, difference));
        }
    }

    fn progress(&mut self, bytes: u64) {
        self.bytes_done += bytes;
        let (bytes_done, bytes_all) = (self.bytes_done, self.bytes_all);
        let problems = self.report.problems.len() as u64;
        (self.on_progress)(VerifyProgress { bytes_done, bytes_all, problems });
    }

    fn goes_on(&self) -> ControlFlow<()> {
        if (self.is_cancelled)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns the difference if the file is not the one that the manifest names.
    fn has_other_bytes(
        &mut self,
        meta: &TableMeta,
        path: &Path,
        source: &dyn TableSource,
    ) -> Option<Corruption> {
        let found = file_checksum(source, &mut |bytes| {
            self.progress(bytes);
            self.goes_on()
        });
        match found {
            Err(_) if (self.is_cancelled)() => None,
            Ok(found) if found == meta.checksum => None,
            Ok(computed) => {
                Some(Corruption::Checksum { what: "whole table", stored: meta.checksum, computed })
            }
            Err(error) => {
                self.report.error(&Error::io("read", path, error));
                None
            }
        }
    }

    /// Reads every block, and probes the filters for every key. Returns the offsets of filters in
    /// the file that are in use; `None` if the table cannot be read.
    fn blocks(
        &mut self,
        VerifiedTable { meta, present, live, .. }: VerifiedTable<'_, '_>,
        path: &Path,
        source: &Arc<dyn TableSource>,
    ) -> Option<Vec<u64>> {
        let identity = meta.identity(self.store_id, self.hash_seed);
        let (files, functions) = (&self.files, self.prefix_functions);
        let folder = self.folder;
        let owner = FilterOwner { meta, present, live, identity, folder, source, files, functions };
        let mut filters = FilterChecks::new(owner, &mut self.report);
        let nothing_kept = Arc::new(BlockCache::new(0));
        let table = Table::open(Arc::clone(source), identity, meta.bytes, nothing_kept)
            .map_err(|error| table_error(path, error));
        let table = match table {
            Ok(table) => table,
            Err(error) => {
                self.report.error_of_keys(&error, Some(all_keys(meta)));
                return None;
            }
        };
        for source in differences(meta, &table) {
            self.report.error(&Error::corrupt(path, 0, source));
        }
        let (mut probes, mut keys) = (0, 0_u64);
        let is_cancelled = self.is_cancelled;
        let verified = table.verify_while(&mut |key| {
            probes += filters.ask(key);
            keys += 1;
            match keys.is_multiple_of(KEYS_UNCHECKED_MAX) && is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if is_cancelled() {
            // The caller discards the report; a filter would look as if it had keys too many.
            return None;
        }
        filters.finish(&mut self.report);
        let used = owner.used_offsets();
        self.report.filter_probes += probes;
        self.report.entries += verified.entries;
        for problem in verified.problems {
            let TableProblem { error, keys, bytes, .. } = problem;
            self.report.error_of_keys(&table_error(path, error), keys);
            self.report.lost_bytes(bytes);
        }
        self.progress(meta.bytes);
        if !meta.blob_files.is_empty() {
            self.blobs(meta, path, &Arc::new(table));
        }
        Some(used)
    }
}

/// The keys of a table of which nothing can be read.
pub(crate) fn all_keys(meta: &TableMeta) -> (Bound<Bytes>, Bound<Bytes>) {
    let (first, last) = meta.bounds.as_range();
    (first.map(Bytes::copy_from_slice), last.map(Bytes::copy_from_slice))
}

/// Returns the differences between a table and the manifest.
fn differences(meta: &TableMeta, table: &Table) -> Vec<Corruption> {
    let properties = table.properties();
    // An ingested table stores another sequence number.
    let (smallest, largest) = match meta.global_sequence {
        Some(sequence) => (sequence, sequence),
        None => (properties.smallest_sequence, properties.largest_sequence),
    };
    let numbers = [
        ("entries in the manifest", meta.entries, properties.entries()),
        ("tombstones in the manifest", meta.tombstones, properties.tombstones()),
        ("smallest sequence number in the manifest", meta.smallest_sequence, smallest),
        ("largest sequence number in the manifest", meta.largest_sequence, largest),
    ];
    let differ = numbers.into_iter().filter(|(_, said, found)| said != found);
    let mut differences: Vec<_> = differ
        .map(|(what, expected, found)| Corruption::Mismatch { what, expected, found })
        .collect();
    if meta.bounds != properties.bounds {
        differences.push(Corruption::Order { what: "bounds in the manifest" });
    }
    differences
}
