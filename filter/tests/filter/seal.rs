//! Makes the checksums of a filter block good, whatever else it holds.

use std::ops::Range;

use sievedb_filter::{DecodeError, Expected, filter_block};

/// Whose filters the tests make.
pub(crate) const EXPECTED: Expected = Expected { hash_seed: 0x5eed, salt: 0x5a17 };

/// Kind, version, length and checksum.
const END_BYTES: usize = 7;

/// The trailer but for its end, by the length it tells; empty if that cannot be.
pub(crate) fn numbers_place(bytes: &[u8]) -> Range<usize> {
    let end = bytes.len().saturating_sub(END_BYTES);
    let trailer_bytes = bytes.get(end + 2).map_or(0, |&length| usize::from(length));
    let start = bytes.len().saturating_sub(trailer_bytes.max(END_BYTES));
    start..end
}

/// Replaces each checksum by the one that the reader asks for, as far as it gets.
pub(crate) fn seal(bytes: &mut [u8], expected: Expected) {
    for _ in 0..6 {
        // The kind is looked at before the checksums of the payload.
        let for_keys = filter_block::decode(bytes, expected).map(drop);
        let found = match for_keys {
            Err(DecodeError::OutOfRange { what: "kind of a filter for keys", .. }) => {
                filter_block::decode_range(bytes, expected).map(drop)
            }
            found => found,
        };
        let Err(DecodeError::Checksum { what, stored, computed }) = found else { break };
        let [stored, computed] = [stored, computed].map(|sum| (sum as u32).to_le_bytes());
        let at = if what.starts_with("filter trailer") {
            bytes.len() - 4
        } else {
            // The checksum of some group: they stand in front of the end.
            let end = bytes.len() - END_BYTES;
            let groups = (1..=4).rev().filter_map(|i| end.checked_sub(4 * i));
            let at = groups.into_iter().find(|&at| bytes[at..at + 4] == stored);
            at.expect("what was stored is there")
        };
        bytes[at..at + 4].copy_from_slice(&computed);
    }
}
