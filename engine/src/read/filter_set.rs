//! The filters of all tables of a version, side by side.

use std::sync::Arc;

use crate::{
    table::TableFilters,
    version::{Run, Version},
};

/// The filters of all tables of a version, as they were when a view was made.
///
/// A lookup finds them beside the tables and takes no reference count; it keeps them alive by its
/// view. Whoever reads for long keeps the tables without them, so that no old filter stays in
/// memory.
#[derive(Debug, Default)]
pub(crate) struct FilterSet {
    runs: Vec<Box<[Arc<TableFilters>]>>,
}

impl FilterSet {
    /// The present filters of the tables of `version`.
    pub(crate) fn of(version: &Version) -> Self {
        let of_run = |run: &Run| run.tables().iter().map(|table| table.filters()).collect();
        Self { runs: version.runs().iter().map(of_run).collect() }
    }

    /// The filters of the tables of each run, in the order of the version's runs.
    pub(crate) fn runs(&self) -> &[Box<[Arc<TableFilters>]>] {
        &self.runs
    }
}
