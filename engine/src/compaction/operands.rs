//! Merge operands of one key in one stripe, which a flush or a compaction reduces.

use std::{collections::VecDeque, mem};

use bytes::Bytes;
use sievedb_format::{Kind, SequenceNumber, Trailer};

use crate::fold::OperatorCell;

/// Maximum number of operands, and of their bytes, in memory. A key with more is folded in parts.
const OPERANDS_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;

/// End of the operands of a stripe.
#[derive(Debug)]
pub(super) enum End {
    /// The value below the operands; `None` for a tombstone.
    Base(Option<Bytes>),
    /// There is no older version of the key.
    OfKey,
    /// The operands must stay separate from the next older version.
    OfStripe,
}

/// Merge operands, newest first.
#[derive(Debug, Default)]
pub(super) struct Operands {
    entries: Vec<(SequenceNumber, Bytes)>,
    bytes: usize,
}

impl Operands {
    /// Adds an operand that is older than all others. Copies it: a slice would keep its block.
    pub(super) fn push(&mut self, sequence: SequenceNumber, operand: &[u8]) {
        debug_assert!(self.oldest().is_none_or(|oldest| oldest > sequence), "newest first");
        self.bytes += operand.len();
        self.entries.push((sequence, Bytes::copy_from_slice(operand)));
    }

    /// Returns the sequence number of the oldest operand.
    pub(super) fn oldest(&self) -> Option<SequenceNumber> {
        self.entries.last().map(|&(sequence, _)| sequence)
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= OPERANDS_MAX || (self.bytes >= BYTES_MAX && self.entries.len() > 1)
    }

    /// Merges neighbors in rounds, so that each byte is copied a logarithmic number of times.
    /// Returns `true` if there is room for as many operands again.
    pub(super) fn reduce(&mut self, key: &[u8], operator: &OperatorCell) -> bool {
        let Some(folder) = operator.get() else { return false };
        let before = self.entries.len();
        loop {
            let count = self.entries.len();
            let mut left = mem::take(&mut self.entries).into_iter().peekable();
            while let Some((sequence, newer)) = left.next() {
                let merged = left.peek().and_then(|(_, older)| folder.partial(key, older, &newer));
                if merged.is_some() {
                    left.next();
                }
                self.entries.push((sequence, merged.unwrap_or(newer)));
            }
            if self.entries.len() == count {
                break;
            }
        }
        self.bytes = self.entries.iter().map(|(_, operand)| operand.len()).sum();
        debug_assert!(self.entries.len() <= before && before > 0, "operands are merged");
        match self.entries.len() {
            1 => true,
            left => left <= OPERANDS_MAX / 2 && self.bytes < BYTES_MAX,
        }
    }

    /// Returns the entries that replace the operands, newest first. Also returns `true` if they are
    /// a single put, which hides all older versions of the stripe. `is_bottom` is `true` if no
    /// older version of the key exists outside of the merge.
    pub(super) fn finish(
        mut self,
        end: End,
        is_bottom: bool,
        key: &[u8],
        operator: &OperatorCell,
    ) -> (VecDeque<(Trailer, Bytes)>, bool) {
        debug_assert!(!self.entries.is_empty(), "there is an operand");
        let base = match end {
            End::Base(base) => Some(base),
            End::OfKey if is_bottom => Some(None),
            End::OfKey | End::OfStripe => None,
        };
        if let (Some(base), Some(folder)) = (base, operator.get()) {
            let oldest_first = self.entries.iter().rev();
            let oldest_first: Vec<&[u8]> = oldest_first.map(|(_, operand)| &**operand).collect();
            match folder.fold(key, base.as_deref(), &oldest_first) {
                Ok(value) => {
                    let put = (Trailer::new(self.entries[0].0, Kind::Put), value);
                    return (VecDeque::from([put]), true);
                }
                Err(error) => folder.note_failure(error),
            }
        } else {
            self.reduce(key, operator);
        }
        let operand = |(sequence, operand)| (Trailer::new(sequence, Kind::Merge), operand);
        (self.entries.into_iter().map(operand).collect(), false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::merge_operator::{Append, Max, MergeError, MergeOperator, NamedOperator};

    fn cell(operator: impl MergeOperator + 'static) -> OperatorCell {
        let cell = OperatorCell::default();
        cell.set(&Arc::default(), &NamedOperator::new(Arc::new(operator)));
        cell
    }

    #[test]
    fn many_operands_are_reduced_to_one_in_order() {
        let (mut operands, append) = (Operands::default(), cell(Append::new()));
        for number in (0..OPERANDS_MAX as u64).rev() {
            assert!(!operands.is_full());
            operands.push(number + 1, &[b'a' + (number % 26) as u8]);
        }
        assert!(operands.is_full() && operands.reduce(b"key", &append));
        let (made, is_put) = operands.finish(End::OfStripe, false, b"key", &append);
        let (trailer, value) = &made[0];
        assert_eq!((made.len(), trailer.sequence(), is_put), (1, OPERANDS_MAX as u64, false));
        let want: Vec<u8> = (0..OPERANDS_MAX).map(|number| b'a' + (number % 26) as u8).collect();
        assert_eq!(**value, *want);
    }

    /// Merges single digits only.
    #[derive(Debug)]
    struct Digits;

    impl MergeOperator for Digits {
        fn name(&self) -> &str {
            "digits"
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
            Err(MergeError::new("never"))
        }

        fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            (older.len() + newer.len() == 2).then(|| [older, newer].concat())
        }
    }

    #[test]
    fn operands_that_cannot_be_merged_stay() {
        let digits = cell(Digits);
        for end in [End::OfStripe, End::OfKey, End::Base(None), End::Base(Some(Bytes::new()))] {
            let mut operands = Operands::default();
            for (sequence, operand) in [(9, "5"), (8, "4"), (7, "33"), (6, "2"), (5, "1")] {
                operands.push(sequence, operand.as_bytes());
            }
            let fails = matches!(end, End::Base(_));
            let (made, is_put) = operands.finish(end, false, b"key", &digits);
            let made: Vec<_> = made.iter().map(|(at, value)| (at.sequence(), &**value)).collect();
            let want: &[(u64, &[u8])] = match fails {
                true => &[(9, b"5"), (8, b"4"), (7, b"33"), (6, b"2"), (5, b"1")],
                false => &[(9, b"45"), (7, b"33"), (6, b"12")],
            };
            assert_eq!((&*made, is_put), (want, false));
        }
        assert_eq!(digits.get().expect("it was set").failures(), 2);
    }

    #[test]
    fn one_large_operand_is_not_full() {
        let (mut operands, max) = (Operands::default(), cell(Max));
        operands.push(2, &[0; BYTES_MAX]);
        assert!(!operands.is_full());
        operands.push(1, &[1]);
        assert!(operands.is_full() && operands.reduce(b"", &max) && !operands.is_full());
    }
}
