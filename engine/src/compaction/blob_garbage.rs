//! Selects blob files whose values are rewritten, to free their garbage.
//!
//! Garbage is stored values without a reference from a table. It is known without a read: each
//! table stores the bytes that it references in each file. A value that is hidden by a newer one
//! becomes garbage when a compaction drops its entry.
//!
//! The files with the largest share of garbage are rewritten first, until the rest has at most the
//! allowed share. They are mostly the oldest. Compared with a bound for each file, this rewrites
//! fewer bytes for the same space (Rosenblum, Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", SOSP 1991).

use std::collections::{BTreeMap, BTreeSet};

use sievedb_sstable::BlobUse;

use super::{
    choice::{Compaction, Reason},
    picker::Picker,
};
use crate::{compaction_style::CompactionStyle, table::TableMeta};

/// Values of a blob file, in stored bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Values {
    /// Length of the file.
    pub(crate) file_bytes: u64,
    all: u64,
    used: u64,
}

impl Values {
    /// Returns the bytes without a reference from a table.
    pub(crate) fn garbage(self) -> u64 {
        self.all.saturating_sub(self.used)
    }

    fn garbage_ratio(self) -> f64 {
        self.garbage() as f64 / self.all.max(1) as f64
    }
}

/// Returns the blob files of `tables`, which belong to one keyspace.
pub(crate) fn blob_values<'t>(
    tables: impl IntoIterator<Item = &'t TableMeta>,
) -> BTreeMap<u64, Values> {
    let mut files = BTreeMap::<u64, Values>::new();
    for used in tables.into_iter().flat_map(|table| &table.blob_files) {
        let values = files.entry(used.file_id).or_default();
        (values.file_bytes, values.all) = (used.bytes, BlobUse::stored_bytes(used));
        values.used = values.used.saturating_add(used.used_bytes);
    }
    files
}

/// Returns the ids of the blob files to rewrite, if garbage may have at most this share of all
/// values. `tables` are those of a keyspace. Files in `unreadable` stay, and do not count.
pub(crate) fn files_to_rewrite<'t>(
    tables: impl IntoIterator<Item = &'t TableMeta>,
    garbage_ratio_max: f64,
    unreadable: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let mut files = blob_values(tables);
    // Their garbage cannot be freed, so it must not make other files due.
    files.retain(|id, _| !unreadable.contains(id));
    let sum =
        |of: fn(Values) -> u64| files.values().fold(0, |sum: u64, it| sum.saturating_add(of(*it)));
    let (mut all, mut garbage) = (sum(|it| it.all), sum(Values::garbage));
    let mut by_garbage: Vec<_> = files.into_iter().collect();
    // Stable: of equals the oldest goes first.
    by_garbage
        .sort_by(|(_, left), (_, right)| right.garbage_ratio().total_cmp(&left.garbage_ratio()));
    let mut rewritten = BTreeSet::new();
    for (id, values) in by_garbage {
        let is_enough = garbage as f64 <= garbage_ratio_max * all as f64;
        if is_enough || values.garbage() == 0 {
            break;
        }
        all -= values.garbage();
        garbage -= values.garbage();
        rewritten.insert(id);
    }
    rewritten
}

impl Picker<'_> {
    /// Rewrites, in place, a table below level 0 that refers to a blob file with too much garbage.
    /// If no such table exists, compacts a group of level 0 with one into the base level. In the
    /// size-tiered style it skips the latter, because that may rewrite all data.
    pub(super) fn pick_blob_garbage(&self) -> Option<Compaction> {
        let is_due = |table: &TableMeta| self.with_blob_garbage.contains(&table.id);
        let below = (1..=self.levels.last()).rev().find_map(|level| {
            let mut tables = self.levels.run(level).iter().copied().filter(|table| is_due(table));
            tables.find_map(|table| {
                self.compaction(Reason::BlobGarbage, vec![(level, vec![table])], level)
            })
        });
        if self.options.style != CompactionStyle::Leveled {
            return below;
        }
        below.or_else(|| {
            let base_level = self.levels.targets(self.options).base_level;
            let groups = self.levels.level0_groups().into_iter();
            let mut due = groups.filter(|group| {
                group.iter().any(|table| is_due(table))
                    && !self.levels.is_kept_in_level0(group, base_level)
            });
            due.find_map(|group| self.move_level0_down(Reason::BlobGarbage, group))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::tests::table_with_blobs;

    /// Length of the values of a file, and the bytes that two tables refer to.
    type File = (u64, u64, u64);

    #[test]
    fn the_files_with_most_garbage_go_first() {
        let cases: [(&[File], f64, &[u64]); 7] = [
            (&[], 0.2, &[]),
            (&[(100, 50, 50)], 0.2, &[]),
            (&[(100, 40, 40)], 0.2, &[]),
            (&[(100, 40, 39)], 0.2, &[1]),
            (&[(100, 100, 0), (100, 10, 0), (100, 60, 0)], 0.3, &[2]),
            (&[(100, 100, 0), (100, 10, 0), (100, 60, 0)], 0.15, &[2, 3]),
            (&[(100, 10, 0), (100, 0, 10)], 1.0, &[]),
        ];
        for (files, ratio, want) in cases {
            let table = |pick: fn(&File) -> u64| {
                let uses = files.iter().zip(1..).map(|(file, id)| (id, file.0, pick(file)));
                table_with_blobs(uses)
            };
            let tables = [table(|file| file.1), table(|file| file.2)];
            let found = files_to_rewrite(&tables, ratio, &BTreeSet::new());
            assert_eq!(found, want.iter().copied().collect(), "{files:?} at {ratio}");
            let unreadable = (0..9).collect();
            assert!(files_to_rewrite(&tables, ratio, &unreadable).is_empty(), "all unreadable");
        }
    }

    /// Otherwise garbage that cannot be freed would make all other files due, again and again.
    #[test]
    fn unreadable_files_make_no_other_file_due() {
        let tables = [table_with_blobs([(1, 100, 10), (2, 100, 99)].into_iter())];
        let found = files_to_rewrite(&tables, 0.2, &BTreeSet::from([1]));
        assert_eq!(found, BTreeSet::new());
    }
}
