//! The trailer's parameters that depend on the kind of the filter.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use super::trailer::{Number, Numbers};
use super::{FilterKind, varint};
use crate::binary_fuse;
use crate::decode_error::DecodeError;
use crate::line::{LINE_BYTES, PROBES_MAX};
use crate::range_filter;
use crate::ribbon;

/// Parameters needed to read a payload besides its length.
#[derive(Debug, Clone)]
pub(super) enum Parameters {
    BlockedBloom { probes: u8 },
    Ribbon(ribbon::Header),
    BinaryFuse(binary_fuse::Header),
    Range(range_filter::Header),
}

impl Parameters {
    pub(super) fn kind(&self) -> FilterKind {
        match self {
            Self::BlockedBloom { .. } => FilterKind::BlockedBloom,
            Self::Ribbon(_) => FilterKind::Ribbon,
            Self::BinaryFuse(_) => FilterKind::BinaryFuse,
            Self::Range(_) => FilterKind::Range,
        }
    }

    /// Appends the parameters to `bytes`.
    pub(super) fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::BlockedBloom { probes } => bytes.push(*probes),
            Self::Ribbon(header) => {
                header.numbers().for_each(|number| varint::put(bytes, number));
            }
            Self::BinaryFuse(header) => {
                header.numbers().into_iter().for_each(|number| varint::put(bytes, number));
            }
            Self::Range(header) => {
                header.numbers().into_iter().for_each(|number| varint::put(bytes, number));
            }
        }
    }

    /// Reads the parameters of a filter of `kind` over `key_count` keys.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if they are invalid or this release does not support the kind.
    pub(super) fn take(
        kind: u8,
        key_count: u64,
        numbers: &mut Numbers<'_, impl FnMut(Number)>,
    ) -> Result<Self, DecodeError> {
        if kind == FilterKind::BlockedBloom as u8 {
            let value = numbers.take("probes")?;
            let probes = u8::try_from(value).ok().filter(|n| (1..=PROBES_MAX).contains(n));
            let what = "probes of the filter";
            let probes = probes.ok_or(DecodeError::OutOfRange { what, value })?;
            Ok(Self::BlockedBloom { probes })
        } else if kind == FilterKind::Ribbon as u8 {
            let (columns, attempt) = (numbers.take("columns")?, numbers.take("attempt")?);
            let mut layer_blocks = Vec::new();
            // All numbers up to the checksums.
            while numbers.rest().len() > 4 * ribbon::Header::groups_of(columns) {
                layer_blocks.push(numbers.take("layer_blocks")?);
            }
            ribbon::Header::from_numbers(columns, attempt, layer_blocks).map(Self::Ribbon)
        } else if kind == FilterKind::BinaryFuse as u8 {
            let mut take = |name| numbers.take(name);
            let numbers =
                [take("print_bits")?, take("segment_log2")?, take("segments")?, take("attempt")?];
            binary_fuse::Header::from_numbers(numbers).map(Self::BinaryFuse)
        } else if kind == FilterKind::Range as u8 {
            let mut values = [0; range_filter::Header::NAMES.len()];
            for (value, name) in values.iter_mut().zip(range_filter::Header::NAMES) {
                *value = numbers.take(name)?;
            }
            range_filter::Header::from_numbers(values, key_count).map(Self::Range)
        } else {
            Err(DecodeError::Unsupported { what: "filter kind", value: kind.into() })
        }
    }

    /// Returns the number of column groups, 1 to 4.
    pub(super) fn group_count(&self) -> usize {
        match self {
            Self::Ribbon(header) => header.groups(),
            Self::BlockedBloom { .. } | Self::BinaryFuse(_) | Self::Range(_) => 1,
        }
    }

    /// Returns the columns of a ribbon, averaged over its slots.
    pub(super) fn columns(&self) -> Option<f64> {
        match self {
            Self::Ribbon(header) => Some(header.layout().columns()),
            _ => None,
        }
    }

    /// Returns the memory of the filter of the first `columns` columns, in bytes.
    pub(super) fn memory_bytes(&self, payload_bytes: u64, columns: f64) -> u64 {
        match self {
            Self::Ribbon(header) => header.layout().memory_bytes(columns),
            _ => payload_bytes,
        }
    }

    /// Returns the positions of the groups with the first `columns` columns.
    pub(super) fn groups(&self, payload_bytes: u64, columns: f64) -> Vec<Range<u64>> {
        match self {
            Self::Ribbon(header) => header.layout().groups_for(columns).collect(),
            Self::BlockedBloom { .. } | Self::BinaryFuse(_) | Self::Range(_) => {
                vec![Range { start: 0, end: payload_bytes }]
            }
        }
    }

    /// Returns the required bytes of the payload, where the block has `found`.
    pub(super) fn payload_bytes(&self, found: u64) -> u64 {
        match self {
            // Any number of whole lines is valid.
            Self::BlockedBloom { .. } => {
                let line_bytes = LINE_BYTES as u64;
                (found - found % line_bytes).max(line_bytes)
            }
            Self::Ribbon(header) => header.layout().payload_bytes(),
            Self::BinaryFuse(header) => header.payload_bytes(),
            Self::Range(header) => header.payload_bytes(),
        }
    }
}
