//! Properties of a filter.

use sievedb_filter::TableFilter;
use sievedb_format::{Corruption, Decoder};

/// Properties of a filter that a table was built with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterProperties {
    /// A [`FilterKind`](sievedb_filter::FilterKind), as its byte.
    pub kind: u8,
    /// Expected false-positive rate, from 0 to 1.
    pub expected_fpr: f64,
}

impl FilterProperties {
    /// Those of `filter`.
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
