//! Cost of writes.

mod blobs;
mod compaction;
mod ingest;
mod overload;
mod small;
mod streams;
mod synced;

use crate::figure::Measurement;

/// The measurements.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    Measurement { item: "1", name: "synced", measure: synced::measure },
    Measurement { item: "2", name: "ingest", measure: ingest::measure },
    Measurement { item: "3", name: "blobs", measure: blobs::measure },
    Measurement { item: "3", name: "streams", measure: streams::measure },
    Measurement { item: "4", name: "overload", measure: overload::measure },
    Measurement { item: "5", name: "compaction", measure: compaction::measure },
    Measurement { item: "8", name: "small", measure: small::measure },
];

/// Returns the median, or the lower middle of an even number of figures. Requires a figure.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}
