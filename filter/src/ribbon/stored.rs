//! The payload of a ribbon's filter block, and the trailer numbers needed to read it.
//!
//! | offset | bytes         | field      | meaning                                                  |
//! |--------|---------------|------------|----------------------------------------------------------|
//! | 0      | 8 × words     | group 0    | words of the columns 0 to 7, block after block           |
//! | t      | ⌈buckets / 4⌉ | thresholds | two bits per bucket, low bits first; buckets of all layers but the last, in order |
//! | 64 × a | 8 × words     | group 1 …  | words of the next eight columns, from the next multiple of 64 on |
//!
//! Zeros pad to a multiple of 64 before another group. The checksum of a group covers all bytes
//! from its start to that of the next one. That of group 0 includes the thresholds, which every
//! probe needs. So any group needs only itself and group 0.
//!
//! Word `j` of a block is column `j` of its group; bit `i` of it is slot `i` of the block. Blocks
//! before `upper` lack the last column. A layer of `b` blocks has `64 b - 1` starts, the last one
//! `64 b - 63`, and one bucket per 128 starts.
//!
//! The numbers in the trailer, all varints:
//!
//! | field          | meaning                                                                    |
//! |----------------|----------------------------------------------------------------------------|
//! | `columns`      | `32 × upper + columns - 1`; columns are 1 to 32, `upper` at most all blocks |
//! | `attempt`      | number of the seeds, 0 to 65,535                                           |
//! | `layer_blocks` | blocks of each layer, 1 to 2^32 - 1; up to the checksums, 1 to 12 of them  |

use alloc::vec::Vec;
use core::num::NonZeroU8;
use core::ops::Range;

use super::Ribbon;
use super::shape::{COLUMNS_MAX, GROUP_COLUMNS, LAYERS_MAX, Shape};
use crate::decode_error::DecodeError;
use crate::page_vec::{PageVec, SystemPages};

/// Alignment of groups, in bytes.
const GROUP_ALIGNMENT: u64 = 64;

/// The numbers needed to read a ribbon's payload, except for the key count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// First block with all columns; earlier ones have one less.
    upper: u64,
    columns: NonZeroU8,
    attempt: u32,
    /// Blocks of 1 to [`LAYERS_MAX`] layers, 1 to 2^32 - 1 each.
    layer_blocks: Vec<u64>,
}

impl Header {
    /// Returns the numbers of the trailer.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let columns = self.upper * u64::from(COLUMNS_MAX) + u64::from(self.columns.get() - 1);
        [columns, self.attempt.into()].into_iter().chain(self.layer_blocks.iter().copied())
    }

    /// Splits the number `columns` of the trailer into columns and `upper`.
    pub(crate) fn columns_of(number: u64) -> (u8, u64) {
        let columns_max = u64::from(COLUMNS_MAX);
        ((number % columns_max) as u8 + 1, number / columns_max)
    }

    /// Returns the column groups for the number `columns` of the trailer.
    pub(crate) fn groups_of(number: u64) -> usize {
        usize::from(Self::columns_of(number).0.div_ceil(GROUP_COLUMNS))
    }

    /// Returns the column groups, 1 to 4.
    pub(crate) fn groups(&self) -> usize {
        usize::from(self.columns.get().div_ceil(GROUP_COLUMNS))
    }

    /// Checks and converts the numbers of the trailer.
    pub(crate) fn from_numbers(
        columns: u64,
        attempt: u64,
        layer_blocks: Vec<u64>,
    ) -> Result<Self, DecodeError> {
        let (columns, upper) = Self::columns_of(columns);
        let ranges = [
            ("attempt of the filter", attempt, 0..=u16::MAX.into()),
            ("layers of the filter", layer_blocks.len() as u64, 1..=LAYERS_MAX as u64),
        ];
        let layers = layer_blocks
            .iter()
            .map(|&blocks| ("blocks of a layer of the filter", blocks, 1..=u32::MAX.into()));
        // A single column cannot be missing.
        let blocks = layer_blocks.iter().fold(0, |sum: u64, &blocks| sum.saturating_add(blocks));
        let upper_max = if columns == 1 { 0 } else { blocks };
        let first_full = ("first full block of the filter", upper, 0..=upper_max);
        for (what, value, range) in ranges.into_iter().chain(layers).chain([first_full]) {
            if !range.contains(&value) {
                return Err(DecodeError::OutOfRange { what, value });
            }
        }
        let columns = NonZeroU8::new(columns).expect("one more than a remainder");
        Ok(Self { upper, columns, attempt: attempt as u32, layer_blocks })
    }

    /// Returns the positions of the parts of the payload.
    pub(crate) fn layout(&self) -> Layout {
        let attempt = u16::try_from(self.attempt).expect("the attempt was checked");
        let mut shape = Shape::new(self.columns, &self.layer_blocks, attempt);
        shape.upper = self.upper;
        // At most 12 layers of 2^32 blocks of 32 words: nothing overflows.
        let mut starts = vec![0];
        let mut end = 8 * shape.group(0).words() + shape.threshold_bytes();
        for index in 1..shape.group_count() {
            let start = end.next_multiple_of(GROUP_ALIGNMENT);
            starts.push(start);
            end = start + 8 * shape.group(index).words();
        }
        Layout { shape, starts, end }
    }
}

/// Positions of the parts of a payload, which may not be in memory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(super) shape: Shape,
    /// Offset of each group.
    starts: Vec<u64>,
    end: u64,
}

impl Layout {
    /// Returns the range that the checksum of each group covers: the whole payload, in order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<u64>> {
        let ends = self.starts[1..].iter().chain([&self.end]);
        self.starts.iter().zip(ends).map(|(&start, &end)| start..end)
    }

    /// Returns the groups with the first `columns` columns: at least one.
    pub(crate) fn groups_for(&self, columns: f64) -> impl Iterator<Item = Range<u64>> {
        self.groups().take(self.shrunk(columns).group_count())
    }

    /// Returns the shape that [`Ribbon::shrink_to`] leaves.
    pub(super) fn shrunk(&self, columns: f64) -> Shape {
        self.shape.shrunk(columns).unwrap_or_else(|| self.shape.clone())
    }

    /// Returns [`Ribbon::columns`] of the whole filter.
    pub(crate) fn columns(&self) -> f64 {
        self.shape.average_columns()
    }

    /// Returns [`Ribbon::memory_bytes`] of the first `columns` columns.
    pub(crate) fn memory_bytes(&self, columns: f64) -> u64 {
        let shape = self.shrunk(columns);
        shape.memory_bytes(shape.all_threshold_bytes() as usize) as u64 // Fewer than slots.
    }

    /// Returns the bytes of the payload.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.end
    }

    fn threshold_bytes(&self) -> Range<usize> {
        let start = 8 * self.shape.group(0).words() as usize; // In memory.
        start..start + self.shape.threshold_bytes() as usize // Fewer than words.
    }
}

impl Ribbon {
    pub(crate) fn header(&self) -> Header {
        Header {
            upper: self.shape.upper,
            columns: self.shape.columns,
            attempt: self.shape.attempt.into(),
            layer_blocks: self.shape.layer_blocks().collect(),
        }
    }

    pub(crate) fn to_payload(&self) -> PageVec<u8> {
        let layout = self.header().layout();
        let mut bytes = PageVec::with_capacity_in(layout.end as usize, SystemPages); // In memory.
        for (group, &start) in self.groups.iter().zip(&layout.starts) {
            bytes.resize(start as usize, 0);
            let words = group.shape.words() as usize; // In memory.
            bytes.extend(group.words().take(words).flat_map(u64::to_le_bytes));
            if start == 0 {
                let stored = layout.threshold_bytes();
                bytes.extend_from_slice(&self.thresholds[..stored.len()]);
                if let Some(last) = bytes.last_mut().filter(|_| !stored.is_empty()) {
                    *last &= !self.shape.stray_threshold_bits();
                }
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::loading::Loading;
    use super::*;
    use crate::arena::FilterArena;

    fn from_payload(layout: &Layout, payload: &[u8], columns: f64, keys: u64) -> Ribbon {
        let heap = FilterArena::heap();
        let mut loading = Loading::new(layout.clone(), columns, &heap);
        for (index, group) in layout.groups_for(columns).enumerate() {
            // Few lines per piece, so that blocks are split anywhere.
            let group = &payload[group.start as usize..group.end as usize];
            group.chunks(192).for_each(|piece| loading.put(index, piece));
        }
        loading.finish(keys)
    }

    /// A partial load equals [`Ribbon::shrunk_to`], and its words equal those of the whole filter.
    #[cfg_attr(miri, ignore = "long loops")]
    #[test]
    fn a_partial_load_equals_a_shrunk_filter() {
        // With few keys a group may have no word.
        let cases = [1.0, 2.5, 7.0, 8.0, 8.1, 8.3, 9.0, 16.05, 16.7, 32.0];
        for (bits_per_key, keys) in cases.into_iter().flat_map(|it| [(it, 3_000), (it, 90)]) {
            let hashes: Vec<u64> =
                (0..keys).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            let whole = Ribbon::build(&hashes, bits_per_key);
            let layout = whole.header().layout();
            let payload = whole.to_payload();
            assert_eq!(payload.len() as u64, layout.payload_bytes());
            assert!(layout.groups().all(|group| group.start.is_multiple_of(GROUP_ALIGNMENT)));
            for columns in
                (4..=4 * u32::from(COLUMNS_MAX)).map(|quarters| f64::from(quarters) / 4.0)
            {
                let first = from_payload(&layout, &payload, columns, keys);
                let shrunk = whole.shrunk_to(columns);
                assert!(first.shape == shrunk.shape, "{columns} of {bits_per_key}");
                assert!(first.groups == shrunk.groups, "{columns} of {bits_per_key}");
                assert!(first.thresholds == shrunk.thresholds);
                assert_eq!(first.expected_fpr.to_bits(), shrunk.expected_fpr.to_bits());
                assert_eq!(layout.memory_bytes(columns), first.memory_bytes() as u64);
                for block in 0..whole.shape.blocks {
                    let found = first.shape.block_columns(block);
                    assert!(found <= whole.shape.block_columns(block));
                    for column in 0..found {
                        let word = |ribbon: &Ribbon| {
                            let group = &ribbon.groups[usize::from(column / GROUP_COLUMNS)];
                            let first = group.shape.first_word(block);
                            group.word(first as usize + usize::from(column % GROUP_COLUMNS))
                        };
                        assert_eq!(word(&first), word(&whole), "{columns} of {bits_per_key}");
                    }
                }
            }
        }
    }
}
