//! The tables of a keyspace at one point in time.

mod run;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use sievedb_format::{
    HeadRange, RangeTombstoneSource, RangeTombstones, SequenceNumber, TableBounds,
};

pub(crate) use run::Run;

use crate::table::{LiveTable, TableMeta};

/// Maximum number of range tombstones of a table that count for [`Version::covered`], which is for
/// large ranges.
const COVERING_MAX: usize = 1024;

static NEXT_VERSION_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Sorted runs, newest first.
///
/// For any key, each version in a run is newer than all its versions in later runs. Level 0 has
/// several runs, each deeper level at most one.
#[derive(Debug)]
pub(crate) struct Version {
    number: u64,
    runs: Box<[Run]>,
    has_range_tombstones: bool,
    widest_range_tombstone: Option<HeadRange>,
    has_expiry: bool,
    covered: OnceLock<BTreeMap<u64, u64>>,
}

impl Default for Version {
    fn default() -> Self {
        Self::new([])
    }
}

impl Version {
    /// Returns the version of these tables, each with its level and run.
    pub(crate) fn new(tables: impl IntoIterator<Item = (u8, u64, Arc<LiveTable>)>) -> Self {
        let mut tables: Vec<_> = tables.into_iter().collect();
        let expires = |live: &LiveTable| live.table.properties().expiry.is_some();
        let has_expiry = tables.iter().any(|(_, _, live)| expires(live));
        tables.sort_by_key(|&(level, run, _)| (level, u64::MAX - run));
        let groups = || tables.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
        let new_run = |group: &[(u8, u64, Arc<LiveTable>)]| {
            let (level, id, _) = group[0];
            Run::new(level, id, group.iter().map(|(_, _, table)| Arc::clone(table)).collect())
        };
        let mut runs: Box<[Run]> = groups().map(new_run).collect();
        let mut newest = 0;
        for run in runs.iter_mut().rev() {
            newest = run.set_newest_below(newest);
        }
        debug_assert!(
            runs.array_windows().all(|[newer, older]: &[Run; 2]| newer.level < older.level
                || (newer.level == 0 && older.level == 0 && newer.id > older.id))
        );
        let has_range_tombstones = runs.iter().any(Run::has_range_tombstones);
        let lists = || {
            let runs = runs.iter().filter(|run| run.has_range_tombstones());
            runs.flat_map(|run| run.tables().iter().map(|live| live.table.range_tombstones()))
        };
        let widest_range_tombstone =
            lists().filter_map(|list| list.widest()).max_by_key(HeadRange::width);
        let number = NEXT_VERSION_NUMBER.fetch_add(1, Relaxed);
        let covered = OnceLock::new();
        Self { number, runs, has_range_tombstones, widest_range_tombstone, has_expiry, covered }
    }

    /// Returns a number unique in this process: equal numbers mean equal tables.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the sorted runs, newest first.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns every table with its level and run.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (u8, u64, &Arc<LiveTable>)> {
        self.runs
            .iter()
            .flat_map(|run| run.tables().iter().map(move |table| (run.level, run.id, table)))
    }

    /// Returns the metadata of the tables, with their current level, run and filters.
    pub(crate) fn metas(&self) -> Vec<Cow<'_, TableMeta>> {
        self.tables().map(|(level, run, live)| live.present_meta(level, run)).collect()
    }

    /// Returns the range tombstones of the tables whose bounds contain `key`, each with the
    /// position of its run.
    pub(crate) fn range_tombstones_over(
        &self,
        key: &[u8],
    ) -> impl Iterator<Item = (usize, &Arc<RangeTombstones>)> {
        let runs = self.runs.iter().enumerate().filter(|(_, run)| run.has_range_tombstones());
        runs.filter_map(move |(place, run)| Some((place, run.find(key)?.table.range_tombstones())))
    }

    /// Returns the sequence number of the newest range tombstone of a table that covers `key` and
    /// that a reader at `sequence` sees, if it is larger than `above`; else `above`.
    pub(crate) fn newest_cover(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        above: SequenceNumber,
    ) -> SequenceNumber {
        let mut newest = above;
        for run in &self.runs {
            if run.newest_range_tombstone() > newest
                && let Some(live) = run.find(key)
            {
                let list = live.table.range_tombstones();
                newest = newest.max(list.newest_cover(key, sequence).unwrap_or(0));
            }
        }
        newest
    }

    /// Returns the bytes that the range tombstones of each table delete, by table id: of older
    /// tables and of the table itself. Estimated at the first call.
    pub(crate) fn covered(&self) -> &BTreeMap<u64, u64> {
        self.covered.get_or_init(|| {
            if !self.has_range_tombstones {
                return BTreeMap::new();
            }
            let each = self.runs.iter().enumerate().flat_map(|(place, run)| {
                run.tables().iter().map(move |live| (live.meta.id, self.covered_by(place, live)))
            });
            each.filter(|&(_, bytes)| bytes > 0).collect()
        })
    }

    /// Returns the bytes that the range tombstones of `live`, in the run at `place`, delete.
    fn covered_by(&self, place: usize, live: &LiveTable) -> u64 {
        let mut covered: BTreeMap<u64, f64> = BTreeMap::new();
        for range in live.table.range_tombstones().iter().take(COVERING_MAX) {
            let bounds = TableBounds::of_range(&range.start, &range.end);
            // In its own run, a table overlaps only itself.
            for other in self.runs[place..].iter().flat_map(|run| run.overlapping(&bounds)) {
                let share = other.table.share_between(&range.start, &range.end);
                *covered.entry(other.meta.id).or_default() += share * other.meta.bytes as f64;
            }
        }
        covered.into_values().sum::<f64>() as u64
    }

    /// Returns `true` if a table overlaps `bounds`.
    pub(crate) fn overlaps(&self, bounds: &TableBounds) -> bool {
        self.runs.iter().any(|run| !run.overlapping(bounds).is_empty())
    }

    pub(crate) fn level0_runs(&self) -> usize {
        self.runs.iter().take_while(|run| run.level == 0).count()
    }

    #[inline]
    pub(crate) fn has_range_tombstones(&self) -> bool {
        self.has_range_tombstones
    }

    /// Returns the range tombstone of a table over the largest part of the key space.
    #[inline]
    pub(crate) fn widest_range_tombstone(&self) -> Option<HeadRange> {
        self.widest_range_tombstone
    }

    /// Returns `true` if any table has entries that expire.
    pub(crate) fn has_expiry(&self) -> bool {
        self.has_expiry
    }
}
