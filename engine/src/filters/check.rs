//! Verification of the filters of a table, in their files and in memory.

use std::{
    borrow::Cow,
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb_filter::{FilterArena, RangeFilter, TableFilter, key_hash};
use sievedb_format::annotation::printable;
use sievedb_sstable::{
    FilterState, FilterUnusable, PrefixExtractor, PrefixFunction, TableIdentity, TableSource,
};

use crate::{
    FilterRole, VerifyReport,
    file_name::FileName,
    prefix_extractor::NamedExtractor,
    table::{FilterPlace, LiveTable, TableMeta, files::TableFiles, filters::with_cause},
    verify_report::{VerifyProblem, VerifyProblemKind},
};

/// A table whose filters are to be verified.
#[derive(Clone, Copy)]
pub(crate) struct FilterOwner<'a, 'm> {
    pub(crate) meta: &'a TableMeta,
    /// Returns its current metadata in the manifest: a filter may be replaced at any time.
    pub(crate) present: &'a dyn Fn() -> Cow<'m, TableMeta>,
    /// The table that lookups use, if the store is open.
    pub(crate) live: Option<&'a LiveTable>,
    pub(crate) identity: TableIdentity,
    pub(crate) folder: &'a Path,
    /// The table's file.
    pub(crate) source: &'a Arc<dyn TableSource>,
    pub(crate) files: &'a TableFiles,
    /// Functions of the extractors that prefix filters were built with.
    pub(crate) functions: &'a [Arc<dyn PrefixFunction>],
}

/// The usable filters of a table.
pub(crate) struct FilterChecks<'a, 'm> {
    owner: FilterOwner<'a, 'm>,
    point: Option<Checked<TableFilter>>,
    /// Result for the filter in memory, without the filter itself, so that it can be dropped.
    in_memory: Option<Checked<()>>,
    prefix: Option<Checked<PrefixFilter>>,
    range: Option<Checked<RangeFilter>>,
}

/// A filter over the prefixes that an extractor finds.
struct PrefixFilter {
    filter: TableFilter,
    extractor: PrefixExtractor,
    hash_seed: u64,
}

/// A filter, and the number of keys of its table that it hides.
struct Checked<F> {
    role: FilterRole,
    path: PathBuf,
    offset: u64,
    filter: F,
    missing: u64,
    /// The first hidden key, printable.
    first: Option<String>,
}

/// A filter in its file.
struct Found {
    source: Arc<dyn TableSource>,
    place: FilterPlace,
}

impl<F> Checked<F> {
    fn new(role: FilterRole, path: PathBuf, offset: u64, filter: F) -> Self {
        Self { role, path, offset, filter, missing: 0, first: None }
    }

    fn note(&mut self, key: &[u8], is_missing: bool) {
        if is_missing {
            self.missing += 1;
            self.first.get_or_insert_with(|| printable(key));
        }
    }

    fn report(self, report: &mut VerifyReport) {
        let Some(first) = self.first else { return };
        let (role, missing) = (self.role, self.missing);
        let message = format!("the {role} rules out {missing} of its keys, first {first}");
        let kind = VerifyProblemKind::FilterWrong;
        report.problems.push(problem(kind, self.path, self.offset, message));
    }
}

fn problem(kind: VerifyProblemKind, path: PathBuf, offset: u64, message: String) -> VerifyProblem {
    VerifyProblem { kind, path, offset, keyspace: None, keys: None, bytes: 0, message }
}

impl<'a, 'm> FilterChecks<'a, 'm> {
    /// Loads the filters, and reports unusable ones. Skips a prefix filter whose extractor is
    /// neither built in nor one of the functions.
    pub(crate) fn new(owner: FilterOwner<'a, 'm>, report: &mut VerifyReport) -> Self {
        let (heap, meta) = (FilterArena::heap(), owner.meta);
        let identity = owner.identity;
        let point = owner.load(FilterRole::Point, report, |found, _| {
            let (own_file, place) = (found.own_file(meta), found.place.into());
            Some(FilterState::load(&*found.source, &identity, own_file, place, &heap))
        });
        let prefix = owner.load(FilterRole::Prefix, report, |found, present| {
            let name = &present.prefix_filter.as_ref()?.extractor;
            let extractor = NamedExtractor::from_name(name, owner.functions);
            let extractor = extractor.present()?.clone();
            let hash_seed = extractor.hash_seed(identity.hash_seed);
            let identity = TableIdentity { hash_seed, ..identity };
            let (own_file, place) = (found.own_file(meta), found.place.into());
            Some(match FilterState::load(&*found.source, &identity, own_file, place, &heap) {
                FilterState::Resident(filter) => {
                    FilterState::Resident(PrefixFilter { filter, extractor, hash_seed })
                }
                FilterState::Unusable(reason) => FilterState::Unusable(reason),
                FilterState::NotResident | FilterState::None => FilterState::None,
            })
        });
        let range = owner.load(FilterRole::Range, report, |found, _| {
            let bounds = (&*meta.bounds.smallest, &*meta.bounds.largest);
            let (own_file, place) = (found.own_file(meta), found.place.into());
            let source = &*found.source;
            Some(FilterState::load_range(source, &identity, own_file, place, bounds, &heap))
        });
        let in_memory = owner.live.and_then(|live| {
            let filters = live.filters();
            let (place, _) = (filters.place?, filters.point.resident()?);
            Some(Checked::new(FilterRole::Point, owner.path(place), place.offset, ()))
        });
        Self { owner, point, in_memory, prefix, range }
    }

    /// Probes the filters for a key of the table. Returns the number of probes.
    pub(crate) fn ask(&mut self, key: &[u8]) -> u64 {
        let Self { owner, point, in_memory, prefix, range } = self;
        let hash = key_hash(key, owner.identity.hash_seed);
        let mut probes = 0;
        if let Some(checked) = point {
            checked.note(key, !checked.filter.may_contain_hash(hash));
            probes += 1;
        }
        if let (Some(checked), Some(live)) = (in_memory, owner.live) {
            checked.note(key, !live.filters().point.may_contain_hash(hash));
            probes += 1;
        }
        if let Some(checked) = prefix
            && let Some(prefix) = checked.filter.extractor.prefix(key)
        {
            let hash = key_hash(prefix, checked.filter.hash_seed);
            checked.note(key, !checked.filter.filter.may_contain_hash(hash));
            probes += 1;
        }
        if let Some(checked) = range {
            let (lower, upper) = (Bound::Included(key), Bound::Included(key));
            let is_missing =
                !checked.filter.may_contain_keys(&owner.meta.bounds.smallest, lower, upper);
            checked.note(key, is_missing);
            probes += 1;
        }
        probes
    }

    /// Reports hidden keys.
    pub(crate) fn finish(self, report: &mut VerifyReport) {
        if let Some(point) = self.point {
            point.report(report);
        }
        if let Some(in_memory) = self.in_memory {
            in_memory.report(report);
        }
        if let Some(prefix) = self.prefix {
            prefix.report(report);
        }
        if let Some(range) = self.range {
            range.report(report);
        }
    }
}

impl Found {
    /// Returns the id of the filter's file, if it is not the table's file.
    fn own_file(&self, meta: &TableMeta) -> Option<u64> {
        Some(self.place.file_id).filter(|&id| id != meta.id)
    }
}

impl FilterOwner<'_, '_> {
    /// Returns the offsets of the filters in the table's file that are currently in use.
    pub(crate) fn used_offsets(&self) -> Vec<u64> {
        let present = (self.present)();
        let places = FilterRole::ALL.into_iter().filter_map(|role| present.filter_place(role));
        places.filter(|place| place.file_id == self.meta.id).map(|place| place.offset).collect()
    }

    /// Loads the filter for `role` with `load`, and reports an unusable filter. Skips it if `load`
    /// returns `None`.
    fn load<F>(
        &self,
        role: FilterRole,
        report: &mut VerifyReport,
        load: impl Fn(&Found, &TableMeta) -> Option<FilterState<F>>,
    ) -> Option<Checked<F>> {
        loop {
            let present = (self.present)();
            let place = present.filter_place(role)?;
            let path = self.path(place);
            let source = if place.file_id == self.meta.id {
                Ok(Arc::clone(self.source))
            } else {
                self.files.source_once(&path)
            };
            let state = match source {
                Ok(source) => load(&Found { source, place }, &present)?,
                Err(error) => FilterState::Unusable(FilterUnusable::Io(error)),
            };
            // The filter may have been replaced, and its file removed.
            let is_unusable = matches!(state, FilterState::Unusable(_));
            if is_unusable && (self.present)().filter_place(role) != Some(place) {
                continue;
            }
            report.filters += 1;
            let offset = place.offset;
            return match state {
                FilterState::Resident(filter) => Some(Checked::new(role, path, offset, filter)),
                FilterState::Unusable(reason) => {
                    let (id, reason) = (self.meta.id, with_cause(&reason));
                    let message = format!("{role} of table {id}: {reason}");
                    let kind = VerifyProblemKind::FilterUnusable;
                    report.problems.push(problem(kind, path, offset, message));
                    None
                }
                FilterState::NotResident | FilterState::None => None,
            };
        }
    }

    fn path(&self, place: FilterPlace) -> PathBuf {
        let is_own = place.file_id == self.meta.id;
        let id = place.file_id;
        let name = if is_own { FileName::Table(id) } else { FileName::Filter(id) };
        name.path(self.folder)
    }
}
