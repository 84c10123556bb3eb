//! The stripes into which readers cut the sequence numbers.

use sievedb_format::{SEQUENCE_MAX, SequenceNumber};

/// Stripes of sequence numbers: readers of the same stripe see the same version of a key, the
/// newest of the stripe or of an older one.
///
/// A stripe ends with the sequence number of a reader, the last one with the newest readers. In a
/// keyspace with a history every sequence number from some point on is that of a reader, and each
/// has a stripe of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// Readers, ascending. The last one is `history_from`, if that is set.
    readers: Vec<SequenceNumber>,
    /// The first sequence number of the history.
    history_from: Option<SequenceNumber>,
}

impl Stripes {
    /// Returns the stripes between readers at `snapshots`, in any order, and at every sequence
    /// number from `history_from` on.
    pub(crate) fn new(
        mut snapshots: Vec<SequenceNumber>,
        history_from: Option<SequenceNumber>,
    ) -> Self {
        if let Some(from) = history_from {
            snapshots.retain(|&sequence| sequence < from);
            snapshots.push(from);
        }
        snapshots.sort_unstable();
        snapshots.dedup();
        Self { readers: snapshots, history_from }
    }

    /// Returns the stripe of a version: the number of readers that are older.
    #[inline]
    pub(crate) fn of(&self, sequence: SequenceNumber) -> usize {
        match self.history_from {
            Some(from) if sequence > from => self.readers.len() - 1 + (sequence - from) as usize,
            _ => self.readers.partition_point(|&reader| reader < sequence),
        }
    }

    /// Returns the sequence number of the newest reader of a stripe.
    #[inline]
    pub(crate) fn end(&self, stripe: usize) -> SequenceNumber {
        match (self.readers.get(stripe), self.history_from) {
            (Some(&reader), _) => reader,
            (None, None) => SEQUENCE_MAX,
            (None, Some(from)) => from + (stripe + 1 - self.readers.len()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_the_history_has_a_stripe() {
        let stripes = Stripes::new(vec![12, 3, 5, 3], Some(8));
        let of: Vec<_> = [1, 3, 4, 5, 6, 8, 9, 10, 12, 13].map(|it| stripes.of(it)).into();
        assert_eq!(of, [0, 0, 1, 1, 2, 2, 3, 4, 6, 7]);
        let ends: Vec<_> = (0..6).map(|stripe| stripes.end(stripe)).collect();
        assert_eq!(ends, [3, 5, 8, 9, 10, 11]);
    }

    #[test]
    fn a_history_from_the_first_write_has_no_older_stripe_with_a_version() {
        let stripes = Stripes::new(vec![2], Some(0));
        assert_eq!([1, 2, 3].map(|sequence| stripes.of(sequence)), [1, 2, 3]);
        assert_eq!([0, 1, 2].map(|stripe| stripes.end(stripe)), [0, 1, 2]);
    }

    #[test]
    fn without_a_history_snapshots_alone_cut() {
        let stripes = Stripes::new(vec![5, 3], None);
        assert_eq!([3, 4, 5, 6, 900].map(|it| stripes.of(it)), [0, 1, 1, 2, 2]);
        assert_eq!([0, 1, 2].map(|stripe| stripes.end(stripe)), [3, 5, SEQUENCE_MAX]);
    }
}
