//! A stored property and its description.

use std::sync::Arc;

use sievedb_filter::TableFilter;
use sievedb_format::{
    Corruption, Decoder, Encode, KEY_BYTES_MAX, SEQUENCE_MAX, SequenceNumber, annotation::printable,
};

use super::{NAMES, REQUIRED};
use crate::table_expiry::TableExpiry;

/// A property, encoded and described.
pub(super) struct Field {
    number: u64,
    pub(super) name: &'static str,
    bytes: Vec<u8>,
    pub(super) meaning: String,
}

impl Field {
    pub(super) fn new(number: u64, bytes: Vec<u8>, meaning: String) -> Self {
        Self { number, name: NAMES[number as usize - 1], bytes, meaning }
    }

    pub(super) fn varint(number: u64, value: u64) -> Self {
        let mut bytes = Vec::new();
        bytes.put_varint(value);
        Self::new(number, bytes, value.to_string())
    }

    /// Returns the property of ascending numbers above 0: the first, then differences.
    pub(super) fn ascending(number: u64, values: &[u64]) -> Self {
        let (mut bytes, mut before) = (Vec::new(), 0);
        for &value in values {
            bytes.put_varint(value - before);
            before = value;
        }
        Self::new(number, bytes, format!("{values:?}"))
    }

    pub(super) fn expiry(number: u64, expiry: &TableExpiry) -> Self {
        let mut bytes = Vec::new();
        expiry.encode(&mut bytes);
        let (oldest_ms, newest_ms) = (expiry.oldest_ms(), expiry.newest_ms());
        let TableExpiry { entries, bytes: of_entries, .. } = expiry;
        let meaning =
            format!("{entries} entries of {of_entries} bytes, from {oldest_ms} to {newest_ms} ms");
        Self::new(number, bytes, meaning)
    }

    /// Returns the property of a filter. `name` is that of its prefix extractor, or empty.
    pub(super) fn filter(number: u64, filter: FilterProperties, name: &str) -> Self {
        let FilterProperties { kind, expected_fpr } = filter;
        let mut bytes = vec![kind];
        bytes.put_u64(expected_fpr.to_bits());
        bytes.put(name.as_bytes());
        let mut meaning = format!("kind {kind}, {:.4} % false positives", expected_fpr * 100.0);
        if !name.is_empty() {
            meaning = format!("{}, {meaning}", printable(name.as_bytes()));
        }
        Self::new(number, bytes, meaning)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let must_understand = REQUIRED.contains(&self.number);
        out.put_varint(self.number << 1 | u64::from(must_understand));
        out.put_prefixed(&self.bytes);
    }
}

/// Properties of a filter that a table was built with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterProperties {
    /// A [`FilterKind`](sievedb_filter::FilterKind), as its byte.
    pub kind: u8,
    /// Expected false-positive rate, from 0 to 1.
    pub expected_fpr: f64,
}

impl FilterProperties {
    /// Returns the properties of `filter`.
    pub(crate) fn of(filter: &TableFilter) -> Self {
        Self { kind: filter.kind() as u8, expected_fpr: filter.expected_fpr() }
    }

    pub(super) fn decode(what: &'static str, field: &mut Decoder<'_>) -> Result<Self, Corruption> {
        let kind = field.u8(what)?;
        let expected_fpr = f64::from_bits(field.u64(what)?);
        if !(0.0..=1.0).contains(&expected_fpr) {
            return Err(Corruption::OutOfRange { what, value: expected_fpr.to_bits() });
        }
        Ok(Self { kind, expected_fpr })
    }
}

/// Decodes the rest of a field as a string.
///
/// # Errors
///
/// [`Corruption::OutOfRange`] with the position of the first byte that is not UTF-8.
pub(super) fn text(what: &'static str, field: &mut Decoder<'_>) -> Result<Box<str>, Corruption> {
    let bytes = field.take(what, field.rest().len())?;
    let text = str::from_utf8(bytes)
        .map_err(|error| Corruption::OutOfRange { what, value: error.valid_up_to() as u64 })?;
    Ok(text.into())
}

pub(super) fn user_key(
    what: &'static str,
    field: &mut Decoder<'_>,
) -> Result<Arc<[u8]>, Corruption> {
    let length = field.rest().len();
    if length > KEY_BYTES_MAX {
        return Err(Corruption::OutOfRange { what, value: length as u64 });
    }
    Ok(field.take(what, length)?.into())
}

/// Decodes ascending numbers above 0: the first, then differences.
///
/// # Errors
///
/// [`Corruption::Order`] if a difference is 0 or too large; those of the decoder.
pub(super) fn ascending(
    what: &'static str,
    field: &mut Decoder<'_>,
) -> Result<Vec<u64>, Corruption> {
    let (mut values, mut value) = (Vec::new(), 0_u64);
    while !field.is_empty() {
        let more = field.varint(what)?;
        value = value.checked_add(more).filter(|_| more > 0).ok_or(Corruption::Order { what })?;
        values.push(value);
    }
    Ok(values)
}

pub(super) fn sequence(
    what: &'static str,
    field: &mut Decoder<'_>,
) -> Result<SequenceNumber, Corruption> {
    let value = field.varint(what)?;
    if value > SEQUENCE_MAX {
        return Err(Corruption::OutOfRange { what, value });
    }
    Ok(value)
}
