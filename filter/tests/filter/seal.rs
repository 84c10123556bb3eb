//! Recomputes the checksums of a filter block with any content.

use std::ops::Range;

use sievedb_filter::{DecodeError, Expected, filter_block};

/// Table of all filters in these tests.
pub(crate) const EXPECTED: Expected = Expected { hash_seed: 0x5eed, salt: 0x5a17 };

/// Kind, version, length and checksum.
const END_BYTES: usize = 7;

/// Returns the trailer without its end, by its stored length; empty if that is invalid.
pub(crate) fn numbers_place(bytes: &[u8]) -> Range<usize> {
    let end = bytes.len().saturating_sub(END_BYTES);
    let trailer_bytes = bytes.get(end + 2).map_or(0, |&length| usize::from(length));
    let start = bytes.len().saturating_sub(trailer_bytes.max(END_BYTES));
    start..end
}

/// Replaces each checksum by the one that the reader computes, as far as it gets.
pub(crate) fn seal(bytes: &mut [u8], expected: Expected) {
    for _ in 0..6 {
        // The reader checks the kind before the checksums of the payload.
        let as_point_filter = filter_block::decode(bytes, expected).map(drop);
        let found = match as_point_filter {
            Err(DecodeError::OutOfRange { what: "kind of a point filter", .. }) => {
                filter_block::decode_range(bytes, expected).map(drop)
            }
            found => found,
        };
        let Err(DecodeError::Checksum { what, stored, computed }) = found else { break };
        let [stored, computed] = [stored, computed].map(|sum| (sum as u32).to_le_bytes());
        let at = if what.starts_with("filter trailer") {
            bytes.len() - 4
        } else {
            // The checksum of some group: they precede the end.
            let end = bytes.len() - END_BYTES;
            let groups = (1..=4).rev().filter_map(|i| end.checked_sub(4 * i));
            let at = groups.into_iter().find(|&at| bytes[at..at + 4] == stored);
            at.expect("the stored checksum is in the block")
        };
        bytes[at..at + 4].copy_from_slice(&computed);
    }
}
