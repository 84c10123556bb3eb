//! Merges that rewrite values, so that few blob files alternate in a table.
//!
//! A merge that keeps references makes tables whose depth is at most the sum of the depths of its
//! input runs. If that exceeds the bound, the merge rewrites all values in key order, which makes
//! the depth 1. So no compaction is needed for the bound alone. A table exceeds it only if it joins
//! tables of one run whose values are in the same files. Pebble does the same, with a bound of 10.

use crate::table::TableMeta;

/// Returns `true` if a merge of these sorted runs must rewrite its values, so that at most
/// `depth_max` blob files alternate in a table. Returns `false` without a bound.
pub(crate) fn must_rewrite<'t, R: IntoIterator<Item = &'t TableMeta>>(
    runs: impl IntoIterator<Item = R>,
    depth_max: Option<u64>,
) -> bool {
    let depth_of = |run: R| run.into_iter().map(|table| table.blob_depth).max().unwrap_or(0);
    depth_max.is_some_and(|most| runs.into_iter().map(depth_of).sum::<u64>() > most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::tests::table_with_blobs;

    /// Depths of the tables of each run.
    type Depths = &'static [&'static [u64]];

    #[test]
    fn a_merge_rewrites_if_the_depths_of_its_runs_exceed_the_bound_together() {
        let cases: [(Depths, Option<u64>, bool); 8] = [
            (&[], Some(1), false),
            (&[&[0], &[0, 0]], Some(1), false),
            (&[&[1], &[1]], Some(2), false),
            (&[&[1], &[1], &[1]], Some(2), true),
            (&[&[1, 1, 1, 1]], Some(1), false),
            (&[&[1], &[4, 9, 2]], Some(10), false),
            (&[&[1, 2], &[4, 9, 2]], Some(10), true),
            (&[&[100], &[100]], None, false),
        ];
        for (runs, depth_max, want) in cases {
            let table =
                |&blob_depth: &u64| TableMeta { blob_depth, ..table_with_blobs([].into_iter()) };
            let tables: Vec<Vec<_>> =
                runs.iter().map(|run| run.iter().map(table).collect()).collect();
            assert_eq!(must_rewrite(&tables, depth_max), want, "{runs:?} up to {depth_max:?}");
        }
    }
}
