//! Bugs that are planted to show that the crash tests would catch them.

use std::sync::Arc;

use sievedb::{Options, fs::MemoryFs, planted::PlantedBug};
use sievedb_tests::{
    enumerate::{Extent, Violation, enumerate, record},
    folder_sync::{LeftOut, NoFolderSync},
    settings::{report, seed, small_options},
    workload::WORKLOADS,
};

/// The first violation that a workload shows, without a crash or else with one.
fn caught(opening: impl Fn(Arc<MemoryFs>) -> Options + Send + Sync + 'static) -> Option<Violation> {
    let extent = Extent::usual(seed("planted bug", 1));
    let mut recorded = WORKLOADS.iter().map(|workload| record(workload, &opening));
    recorded.find_map(Result::err).or_else(|| {
        WORKLOADS.iter().find_map(|workload| enumerate(workload, &opening, &extent).err())
    })
}

fn expect_caught(name: &str, opening: impl Fn(Arc<MemoryFs>) -> Options + Send + Sync + 'static) {
    let violation = caught(opening).unwrap_or_else(|| panic!("{name} was not caught"));
    let first = violation.message.lines().next().unwrap_or_default();
    report(&format!("planted bug, {name}: {first}"));
}

#[test]
fn folder_syncs_left_out_are_caught() {
    let cases = [
        LeftOut::All,
        LeftOut::AfterTable,
        LeftOut::AfterLog,
        LeftOut::AfterCurrent,
        LeftOut::AfterFolder,
    ];
    for left_out in cases {
        expect_caught(&format!("folder sync left out, {left_out:?}"), move |disk| {
            small_options(Arc::new(NoFolderSync::new(disk, left_out)))
        });
    }
}

#[test]
fn a_flush_installed_before_the_log_is_synced_is_caught() {
    expect_caught("flush before log sync", |disk| {
        small_options(disk).planted_bug(PlantedBug::InstallFlushBeforeLogSync)
    });
}

#[test]
fn orphans_deleted_before_the_manifest_is_durable_are_caught() {
    expect_caught("orphans deleted early", |disk| {
        small_options(disk).planted_bug(PlantedBug::DeleteOrphansEarly)
    });
}

#[test]
fn a_tombstone_dropped_early_is_caught() {
    expect_caught("tombstone dropped early", |disk| {
        small_options(disk).planted_bug(PlantedBug::DropTombstoneEarly)
    });
}
