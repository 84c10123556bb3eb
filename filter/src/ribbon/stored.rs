//! The payload of a ribbon's filter block, and the fields of its trailer that say how to read it.
//!
//! | offset | bytes      | field        | meaning                                                    |
//! |--------|------------|--------------|------------------------------------------------------------|
//! | 0      | 8 × words  | group 0      | words of the columns 0 to 7, block after block             |
//! | 64 × a | 8 × words  | group 1 …    | those of the next eight, from the next multiple of 64 on   |
//! | b      | ⌈buckets / 4⌉ | thresholds | two bits a bucket, low bits first; buckets of all layers but the last, in order |
//! | c      | 4 × layers | layer blocks | blocks of each layer, at least 1                           |
//!
//! Zeros fill up a group to a multiple of 64 if another one follows. Word `j` of a block is column `j`
//! of its group; bit `i` of it is slot `i` of the block. Blocks before `upper` lack the last column.
//! A layer of `b` blocks has `64 b - 1` starts, the last one `64 b - 63`, and a bucket for each 128.

use std::num::NonZeroU8;

use super::Ribbon;
use super::group::Group;
use super::path::Path;
use super::shape::{COLUMNS_MAX, LAYERS_MAX, Shape};
use crate::decode_error::DecodeError;

/// Groups start at multiples of so many bytes.
const GROUP_ALIGNMENT: u64 = 64;

/// The fields of the trailer that the payload of a ribbon needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) groups: u8,
    pub(crate) columns: u8,
    pub(crate) layers: u8,
    pub(crate) attempt: u16,
    pub(crate) blocks: u64,
    pub(crate) upper: u64,
    pub(crate) key_count: u64,
}

impl Ribbon {
    pub(crate) fn header(&self) -> Header {
        Header {
            groups: self.groups.len() as u8,       // At most 4.
            layers: self.shape.layers.len() as u8, // At most `LAYERS_MAX`.
            columns: self.shape.columns.get(),
            attempt: self.shape.attempt,
            blocks: self.shape.blocks,
            upper: self.shape.upper,
            key_count: self.key_count,
        }
    }

    pub(crate) fn to_payload(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.memory_bytes());
        for group in &self.groups {
            bytes.resize(bytes.len().next_multiple_of(GROUP_ALIGNMENT as usize), 0);
            let words = group.shape.words() as usize; // They are in memory.
            bytes.extend(group.words().take(words).flat_map(u64::to_le_bytes));
        }
        let thresholds = self.shape.threshold_bytes() as usize; // They are in memory.
        bytes.extend_from_slice(&self.thresholds[..thresholds]);
        if let Some(last) = bytes.last_mut().filter(|_| thresholds > 0) {
            *last &= !self.shape.stray_threshold_bits();
        }
        for blocks in self.shape.layer_blocks() {
            let blocks = u32::try_from(blocks).expect("2^32 blocks do not fit into memory");
            bytes.extend_from_slice(&blocks.to_le_bytes());
        }
        bytes
    }

    /// The filter that a payload holds. Nothing is checked again when it is asked.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the payload is not what the header says, before anything is allocated for
    /// it.
    pub(crate) fn from_payload(header: Header, payload: &[u8]) -> Result<Self, DecodeError> {
        let shape = shape(header, payload)?;
        let (places, end) = group_places(&shape);
        let tables = shape.threshold_bytes() + 4 * u64::from(header.layers);
        let expected = end + tables;
        if payload.len() as u64 != expected {
            let what = "bytes of the filter's payload";
            return Err(DecodeError::Mismatch { what, expected, found: payload.len() as u64 });
        }
        // Every place is within the payload from here on.
        let groups = places
            .iter()
            .enumerate()
            .map(|(index, &place)| {
                let shape = shape.group(index);
                let bytes = &payload[place as usize..][..8 * shape.words() as usize];
                Group::from_bytes(shape, bytes)
            })
            .collect();
        let thresholds = payload[end as usize..][..shape.threshold_bytes() as usize].to_vec();
        Ok(Self::from_parts(Path::detect(), shape, groups, thresholds, header.key_count))
    }
}

/// Reads and checks what decides about lengths.
fn shape(header: Header, payload: &[u8]) -> Result<Shape, DecodeError> {
    let Header { groups, columns, layers, attempt, blocks, upper, .. } = header;
    let ranges = [
        ("columns of the filter", u64::from(columns), 1..=COLUMNS_MAX.into()),
        ("layers of the filter", layers.into(), 1..=LAYERS_MAX as u64),
        // One column less than one would be none.
        ("first full block of the filter", upper, 0..=if columns == 1 { 0 } else { blocks }),
    ];
    for (what, value, range) in ranges {
        if !range.contains(&value) {
            return Err(DecodeError::OutOfRange { what, value });
        }
    }
    let columns = NonZeroU8::new(columns).expect("checked above");

    let table_bytes = 4 * usize::from(layers);
    let Some(table) = payload.len().checked_sub(table_bytes).map(|at| &payload[at..]) else {
        let (need, have) = (table_bytes as u64, payload.len() as u64);
        return Err(DecodeError::Truncated { what: "layers of the filter", need, have });
    };
    let (table, _) = table.as_chunks();
    let layer_blocks: Vec<u64> =
        table.iter().map(|bytes| u32::from_le_bytes(*bytes).into()).collect();
    if layer_blocks.contains(&0) {
        return Err(DecodeError::OutOfRange { what: "blocks of a layer", value: 0 });
    }
    let mut shape = Shape::new(columns, &layer_blocks, attempt);
    shape.upper = upper;
    let group_count = shape.group_count() as u64;
    for (what, expected, found) in [
        ("blocks of the filter", shape.blocks, blocks),
        ("column groups of the filter", group_count, groups.into()),
    ] {
        if expected != found {
            return Err(DecodeError::Mismatch { what, expected, found });
        }
    }
    Ok(shape)
}

/// Where in the payload each group starts, and where the last one ends.
///
/// At most 12 layers of 2^32 blocks of 32 words: nothing overflows.
fn group_places(shape: &Shape) -> (Vec<u64>, u64) {
    let mut places = Vec::new();
    let mut end = 0_u64;
    for index in 0..shape.group_count() {
        let place = end.next_multiple_of(GROUP_ALIGNMENT);
        places.push(place);
        end = place + 8 * shape.group(index).words();
    }
    (places, end)
}
