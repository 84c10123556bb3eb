//! Human-readable fields of a filter block.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
use core::ops::Range;

use super::trailer::{END_BYTES, Number, Trailer, crc32, split};
use super::{COLUMNS, Expected, check_crc32};
use crate::decode_error::DecodeError;
use crate::ribbon;

/// A field of a filter block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Position within the block, in bytes.
    pub place: Range<u64>,
    /// Name of the field.
    pub name: &'static str,
    /// Value of the field in words.
    pub meaning: String,
}

/// Describes the fields of a filter block, as far as they can be decoded; the block may be damaged.
///
/// The trailer's checksum is verified only if `expected` is given.
#[must_use]
pub fn describe(bytes: &[u8], expected: Option<Expected>) -> Vec<Field> {
    let (payload, raw) = match split(bytes) {
        Ok(parts) => parts,
        Err(error) => {
            let place = 0..bytes.len() as u64;
            return vec![Field { place, name: "filter", meaning: format!("damaged: {error}") }];
        }
    };
    let base = payload.len() as u64;
    let mut fields = vec![describe_payload(payload)];
    let mut push = |from: usize, to: usize, name, meaning| {
        let place = base + from as u64..base + to as u64;
        fields.push(Field { place, name, meaning });
    };
    let end = raw.len() - END_BYTES;
    let mut numbers_end = 0;
    let trailer = Trailer::parse(raw, base, |Number { from, to, name, value }| {
        push(from, to, name, meaning(name, value));
        numbers_end = to;
    });
    match &trailer {
        Ok(trailer) => {
            for (i, group) in trailer.check_groups(payload, COLUMNS).enumerate() {
                let from = numbers_end + 4 * i;
                push(from, from + 4, "group_crc32", verdict(group));
            }
        }
        Err(error) => push(numbers_end, end, "rest", format!("damaged: {error}")),
    }

    let [kind, version, trailer_bytes, ..] = raw[end..] else { return fields };
    let kind = match kind {
        1 => "1, blocked Bloom".to_owned(),
        2 => "2, ribbon".to_owned(),
        3 => "3, binary fuse".to_owned(),
        4 => "4, range".to_owned(),
        other => format!("{other}, not supported by this release"),
    };
    push(end, end + 1, "kind", kind);
    push(end + 1, end + 2, "version", version.to_string());
    push(end + 2, end + 3, "trailer_bytes", trailer_bytes.to_string());
    let (covered, stored) = raw.split_last_chunk().expect("a trailer has its end");
    let stored = u32::from_le_bytes(*stored);
    let sealed = match expected {
        Some(expected) => {
            let what = "filter trailer, hash seed and salt";
            verdict(check_crc32(what, stored, crc32(expected, covered)))
        }
        None => "not verified: hash seed and salt are unknown".to_owned(),
    };
    push(end + 3, end + 7, "trailer_crc32", sealed);
    fields
}

fn describe_payload(payload: &[u8]) -> Field {
    let ones: u64 = payload.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let fill = ones as f64 / (payload.len().max(1) * 8) as f64;
    let meaning = format!("{ones} bits set, {:.1} %", fill * 100.0);
    Field { place: 0..payload.len() as u64, name: "payload", meaning }
}

fn meaning(name: &str, value: u64) -> String {
    if name != "columns" {
        return value.to_string();
    }
    match ribbon::Header::columns_of(value) {
        (columns, 0) => columns.to_string(),
        (columns, upper) => format!("{columns}, of the first {upper} blocks {}", columns - 1),
    }
}

fn verdict(result: Result<(), DecodeError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("damaged: {error}"),
    }
}
