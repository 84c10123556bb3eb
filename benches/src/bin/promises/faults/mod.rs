//! Faults found in review: figures before and after their fixes.

mod closing;
mod keyspaces;
mod pinned;
mod resident;
mod stalls;
mod write_amplification;

use crate::figure::Measurement;

/// The measurements, in the order of the items.
pub(crate) const MEASUREMENTS: &[Measurement] = &[
    Measurement { item: "8", name: "stalls", measure: stalls::measure },
    Measurement { item: "9", name: "pinned", measure: pinned::measure },
    Measurement { item: "9", name: "resident", measure: resident::measure },
    Measurement { item: "11", name: "closing", measure: closing::measure },
    Measurement { item: "12", name: "reopening", measure: keyspaces::measure_reopening },
    Measurement { item: "13", name: "many-keyspaces", measure: keyspaces::measure_writes },
    Measurement { item: "13", name: "dropping", measure: keyspaces::measure_drops },
    Measurement { item: "14", name: "write-amplification", measure: write_amplification::measure },
];
