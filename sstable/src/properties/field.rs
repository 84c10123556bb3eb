//! One property, as it is stored and shown.

use std::sync::Arc;

use sievedb_format::{
    Corruption, Decoder, Encode, KEY_BYTES_MAX, SEQUENCE_MAX, SequenceNumber, annotation::printable,
};

use super::{FilterProperties, NAMES, REQUIRED};

/// A property as it is stored and shown.
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

    /// A filter, and the name of its extractor if there is one.
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
