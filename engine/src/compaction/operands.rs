//! Merge operands of one key in one stripe, which a flush or a compaction reduces.

use std::{collections::VecDeque, mem};

use bytes::Bytes;
use sievedb_format::{Kind, SequenceNumber, Trailer, VALUE_BYTES_MAX};

use crate::fold::OperatorCell;

/// Memory of the operands of a key that is not charged.
const FREE_BYTES: usize = 64 << 10;
/// Maximum memory of the operands of a key. A key with more is folded in parts.
const BYTES_MAX: usize = VALUE_BYTES_MAX;
/// Memory of an operand in addition to its bytes.
const ENTRY_BYTES: usize = 64;

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
#[derive(Debug)]
pub(super) struct Operands {
    entries: Vec<(SequenceNumber, Bytes)>,
    /// Memory that they take, and may take.
    bytes: usize,
    room: usize,
}

impl Operands {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), bytes: 0, room: FREE_BYTES }
    }

    /// Adds an operand that is older than all others. Copies it: a slice would keep its block.
    pub(super) fn push(&mut self, sequence: SequenceNumber, operand: &[u8]) {
        debug_assert!(self.oldest().is_none_or(|oldest| oldest > sequence), "newest first");
        self.bytes += memory_of(operand);
        self.entries.push((sequence, Bytes::copy_from_slice(operand)));
    }

    /// Returns the sequence number of the oldest operand.
    pub(super) fn oldest(&self) -> Option<SequenceNumber> {
        self.entries.last().map(|&(sequence, _)| sequence)
    }

    pub(super) fn has_room(&self, operand: &[u8]) -> bool {
        self.bytes + memory_of(operand) <= self.room
    }

    /// Reduces the operands, and makes room for `operand`. Returns the memory to charge, which
    /// includes results of the operator. Returns `None` if `operand` must be folded apart.
    pub(super) fn make_room(
        &mut self,
        operand: &[u8],
        key: &[u8],
        operator: &OperatorCell,
    ) -> Option<u64> {
        self.reduce(key, operator);
        self.room = room(self.bytes, memory_of(operand))?;
        Some(if self.room > FREE_BYTES { 2 * self.room as u64 } else { 0 })
    }

    /// Merges neighbors in rounds, so that each byte is copied a logarithmic number of times.
    fn reduce(&mut self, key: &[u8], operator: &OperatorCell) {
        let Some(folder) = operator.get() else { return };
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
        self.bytes = self.entries.iter().map(|(_, operand)| memory_of(operand)).sum();
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

fn memory_of(operand: &[u8]) -> usize {
    operand.len() + ENTRY_BYTES
}

/// Returns the room for operands that take `held` bytes, and one more of `added` bytes. Doubles
/// it, so that joined operands are rarely copied. Returns `None` beyond the maximum.
fn room(held: usize, added: usize) -> Option<usize> {
    let least = held + added;
    (held == 0 || least <= BYTES_MAX)
        .then(|| (least + held).min(BYTES_MAX).max(least).max(FREE_BYTES))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::merge_operator::{Append, MergeError, MergeOperator, NamedOperator};

    fn cell(operator: impl MergeOperator + 'static) -> OperatorCell {
        let cell = OperatorCell::default();
        cell.set(&Arc::default(), &NamedOperator::new(Arc::new(operator)));
        cell
    }

    #[test]
    fn many_operands_are_reduced_to_one_in_order() {
        let (mut operands, append) = (Operands::new(), cell(Append::new()));
        let operand = |number: u64| [b'a' + (number % 26) as u8];
        let count = (FREE_BYTES / memory_of(&operand(0))) as u64;
        for number in (1..=count).rev() {
            assert!(operands.has_room(&operand(number)));
            operands.push(number, &operand(number));
        }
        assert!(!operands.has_room(&[0; ENTRY_BYTES]));
        assert_eq!(operands.make_room(&[0], b"key", &append), Some(0), "it needs less");
        let (made, is_put) = operands.finish(End::OfStripe, false, b"key", &append);
        let (trailer, value) = &made[0];
        assert_eq!((made.len(), trailer.sequence(), is_put), (1, count, false));
        assert_eq!(**value, *(1..=count).flat_map(operand).collect::<Vec<_>>());
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
            let mut operands = Operands::new();
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
    fn room_doubles_up_to_its_maximum() {
        let cases = [
            ((100, 100), Some(FREE_BYTES)),
            ((0, FREE_BYTES + 1), Some(FREE_BYTES + 1)),
            ((FREE_BYTES, 100), Some(2 * FREE_BYTES + 100)),
            ((BYTES_MAX - 100, 100), Some(BYTES_MAX)),
            ((BYTES_MAX - 100, 101), None),
            ((0, BYTES_MAX + ENTRY_BYTES), Some(BYTES_MAX + ENTRY_BYTES)),
        ];
        for ((held, added), want) in cases {
            assert_eq!(room(held, added), want, "{held} and {added}");
        }
    }
}
