//! Cost of writes.

mod synced;

use crate::figure::Measurement;

/// The measurements.
pub(crate) const MEASUREMENTS: &[Measurement] =
    &[Measurement { item: "1", name: "synced", measure: synced::measure }];
