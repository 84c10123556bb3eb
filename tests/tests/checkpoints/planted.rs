//! Planted bugs of checkpoints that the comparison with a model finds.

use std::sync::Arc;

use sievedb::planted::PlantedBug;
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    enumerate::record,
    settings::{report, small_options},
    workload::workload,
};

#[test]
fn planted_incomplete_checkpoints_are_caught() {
    for bug in [PlantedBug::OmitTableFromCheckpoint, PlantedBug::CheckpointWithoutLogBuffer] {
        let opening = move |disk: Arc<MemoryFs>| small_options(disk).planted_bug(bug);
        let caught = record(workload("checkpoints"), &opening);
        let violation = caught.err().unwrap_or_else(|| panic!("{bug:?} was not caught"));
        let first = violation.message.lines().next().unwrap_or_default();
        report(&format!("planted bug, {bug:?}: {first}"));
    }
}
