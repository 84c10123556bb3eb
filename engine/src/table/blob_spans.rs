//! The depth of the blob files of a table: how many of them alternate in key order.
//!
//! The references of a table to one blob file span a range of its entries. Where many of these
//! ranges overlap, a scan alternates between as many files. A flush writes values in key order, so
//! its files follow each other, and the depth is 1. The depth after a merge is at most the sum of
//! the depths of its inputs. Pebble calls it the blob reference depth.

use std::collections::BTreeMap;

/// The ranges of the entries of a table that refer to each blob file.
#[derive(Debug, Default)]
pub(super) struct BlobSpans {
    /// Number of references so far.
    references: u64,
    /// First and last reference to each file.
    spans: BTreeMap<u64, (u64, u64)>,
}

impl BlobSpans {
    /// Records that the next reference of the table is to this file.
    pub(super) fn note(&mut self, file_id: u64) {
        let at = self.references;
        self.references += 1;
        self.spans.entry(file_id).or_insert((at, at)).1 = at;
    }

    /// Returns the largest number of files whose ranges overlap, and begins the next table.
    pub(super) fn take_depth(&mut self) -> u64 {
        let spans = std::mem::take(self).spans;
        let mut starts: Vec<_> = spans.values().map(|span| span.0).collect();
        let mut ends: Vec<_> = spans.values().map(|span| span.1).collect();
        starts.sort_unstable();
        ends.sort_unstable();
        // Number of ranges at the start of a range: those that have begun, without those that have
        // ended.
        let begun = starts.iter().zip(1_u64..);
        let open =
            begun.map(|(start, begun)| begun - ends.partition_point(|end| end < start) as u64);
        open.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_is_the_number_of_files_that_alternate() {
        let cases: [(&[u64], u64); 8] = [
            (&[], 0),
            (&[1], 1),
            (&[1, 1, 2, 2, 3, 4], 1),
            (&[1, 2, 1], 2),
            (&[1, 2, 3, 3, 2, 1], 3),
            (&[1, 2, 1, 3, 4, 3, 5], 2),
            (&[1, 2, 3, 1, 4, 5, 2, 6], 3),
            (&[7, 6, 5, 7, 6, 5], 3),
        ];
        let mut spans = BlobSpans::default();
        for (files, want) in cases {
            files.iter().for_each(|&file| spans.note(file));
            assert_eq!(spans.take_depth(), want, "{files:?}");
        }
    }
}
