//! Planted bugs in the validation of transactions, which the checker of histories finds.

use sievedb::{Isolation, planted::PlantedBug};
use sievedb_tests::{
    isolation::anomaly,
    settings::{report, seed},
};

use crate::isolation::transactions::{COUNT, run};

/// The checker of histories finds commits that do not validate what they must.
#[test]
fn planted_validation_bugs_are_caught() {
    let cases = [
        (PlantedBug::SkipRangeValidation, Isolation::Serializable),
        (PlantedBug::SkipInFlightValidation, Isolation::Serializable),
        (PlantedBug::SkipInFlightValidation, Isolation::Snapshot),
    ];
    let seed = seed("planted bug", 1);
    for (bug, isolation) in cases {
        let phases = run(isolation, Some(bug), COUNT, seed);
        let promised = match isolation {
            Isolation::Serializable => anomaly::Isolation::Serializable,
            _ => anomaly::Isolation::Snapshot,
        };
        let mut found = phases.iter().flat_map(|phase| phase.report.violations(promised));
        let first = found.next().unwrap_or_else(|| panic!("{bug:?} was not caught, {isolation:?}"));
        let further = found.count();
        report(&format!(
            "planted bug, {bug:?}, {isolation:?}: {}, {further} further",
            first.anomaly
        ));
    }
}
