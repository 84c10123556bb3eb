//! Looks at the prefix filter and the range filter of a table.

use std::{ops::Bound, path::Path, sync::Arc};

use sievedb_filter::{FilterArena, RangeFilter, TableFilter, key_hash};
use sievedb_format::annotation::printable;
use sievedb_sstable::{
    FilterState, FilterUnusable, PrefixExtractor, PrefixFunction, Table, TableIdentity, TableSource,
};

use crate::{
    VerifyReport,
    prefix_extractor::NamedExtractor,
    table::{FilterPlace, TableMeta, filters::with_cause},
    verify_report::{VerifyProblem, VerifyProblemKind},
};

/// The filters of a table that scans ask, as its file has them.
pub(crate) struct ScanFilterCheck<'a> {
    meta: &'a TableMeta,
    path: &'a Path,
    prefix: Option<Checked<'a, PrefixFilter>>,
    range: Option<Checked<'a, RangeFilter>>,
}

/// A filter over the prefixes that an extractor finds.
struct PrefixFilter {
    filter: TableFilter,
    extractor: PrefixExtractor,
    hash_seed: u64,
}

/// A filter, and the keys of its table that it rules out.
struct Checked<'a, F> {
    /// What people call it.
    name: &'a str,
    place: FilterPlace,
    filter: F,
    missing: u64,
    /// The first of them, for people.
    first: Option<String>,
}

impl<'a, F> Checked<'a, F> {
    fn new(name: &'a str, place: FilterPlace, filter: F) -> Self {
        Self { name, place, filter, missing: 0, first: None }
    }

    fn note(&mut self, key: &[u8], is_missing: bool) {
        if is_missing {
            self.missing += 1;
            self.first.get_or_insert_with(|| printable(key));
        }
    }

    fn report(self, path: &Path, report: &mut VerifyReport) {
        let Some(first) = self.first else { return };
        let (name, missing) = (self.name, self.missing);
        report.problems.push(VerifyProblem {
            kind: VerifyProblemKind::FilterWrong,
            path: path.to_owned(),
            offset: self.place.offset,
            message: format!("the {name} rules out {missing} of its keys, first {first}"),
        });
    }
}

impl<'a> ScanFilterCheck<'a> {
    /// Loads the filters of `table`, whose file at `path` is `source`, and reports those that cannot be
    /// used. A prefix filter whose extractor is none of `functions`, and none of ours, cannot be asked.
    pub(crate) fn new(
        meta: &'a TableMeta,
        path: &'a Path,
        (source, identity): (&dyn TableSource, TableIdentity),
        table: &Table,
        functions: &[Arc<dyn PrefixFunction>],
        report: &mut VerifyReport,
    ) -> Self {
        let mut unusable = |name: &str, place: FilterPlace, reason: &FilterUnusable| {
            report.problems.push(VerifyProblem {
                kind: VerifyProblemKind::FilterUnusable,
                path: path.to_owned(),
                offset: place.offset,
                message: format!("{name} of table {}: {}", meta.id, with_cause(reason)),
            });
        };
        let mut filters = 0;
        let named = table.properties().prefix_filter.as_ref().map(|(_, name)| name);
        let extractor = named.map(|name| NamedExtractor::from_name(name, functions));
        let extractor = extractor.as_ref().and_then(NamedExtractor::present);
        let prefix = extractor.zip(meta.prefix_filter).and_then(|(extractor, place)| {
            let (name, hash_seed) = ("prefix filter", extractor.hash_seed(identity.hash_seed));
            let identity = TableIdentity { hash_seed, ..identity };
            let arena = FilterArena::heap();
            filters += 1;
            match FilterState::load(source, &identity, Some(place.into()), &arena) {
                FilterState::Resident(filter) => {
                    let filter = PrefixFilter { filter, extractor: extractor.clone(), hash_seed };
                    return Some(Checked::new(name, place, filter));
                }
                FilterState::Unusable(reason) => unusable(name, place, &reason),
                FilterState::NotResident | FilterState::None => {}
            }
            None
        });
        let range = meta.range_filter.and_then(|place| {
            let (name, bounds) = ("range filter", (&*meta.smallest, &*meta.largest));
            filters += 1;
            match FilterState::load_range(source, &identity, Some(place.into()), bounds) {
                FilterState::Resident(filter) => return Some(Checked::new(name, place, filter)),
                FilterState::Unusable(reason) => unusable(name, place, &reason),
                FilterState::NotResident | FilterState::None => {}
            }
            None
        });
        report.filters += filters;
        Self { meta, path, prefix, range }
    }

    /// Asks the filters for a key of the table. Returns how many were asked.
    pub(crate) fn ask(&mut self, key: &[u8]) -> u64 {
        let mut asked = 0;
        if let Some(checked) = &mut self.prefix
            && let Some(prefix) = checked.filter.extractor.prefix(key)
        {
            let hash = key_hash(prefix, checked.filter.hash_seed);
            let is_missing = !checked.filter.filter.may_contain_hash(hash);
            checked.note(key, is_missing);
            asked += 1;
        }
        if let Some(checked) = &mut self.range {
            let (lower, upper) = (Bound::Included(key), Bound::Included(key));
            let is_missing = !checked.filter.may_contain_keys(&self.meta.smallest, lower, upper);
            checked.note(key, is_missing);
            asked += 1;
        }
        asked
    }

    /// Reports the keys that were ruled out.
    pub(crate) fn finish(self, report: &mut VerifyReport) {
        if let Some(prefix) = self.prefix {
            prefix.report(self.path, report);
        }
        if let Some(range) = self.range {
            range.report(self.path, report);
        }
    }
}
