//! Planted bugs that the tests must catch.

mod mixed;
mod transactions;

use std::sync::Arc;

use sievedb::{Options, planted::PlantedBug};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    check::{Opening, guarded},
    dir_sync::{LeftOut, NoDirSync},
    enumerate::{Extent, Violation, enumerate, record},
    no_sync::NoSync,
    settings::{report, seed, small_options},
    workload::{WORKLOADS, Workload, workload},
};

use crate::{
    async_commits::power_cuts::cut_everywhere, compaction_styles::fifo_crash::crash_everywhere,
    ingest::races::read_beside_ingests, model::Story,
};

/// Returns the first violation of a workload, without a crash or else with one.
fn caught(workloads: &[&Workload], opening: &Opening) -> Option<Violation> {
    let extent = Extent::usual(seed("planted bug", 1));
    let mut recorded = workloads.iter().map(|workload| record(workload, opening));
    recorded.find_map(Result::err).or_else(|| {
        workloads.iter().find_map(|workload| enumerate(workload, opening, &extent).err())
    })
}

fn expect_caught_by(
    workloads: &[&Workload],
    name: &str,
    opening: impl Fn(Arc<MemoryFs>) -> Options + Send + Sync + 'static,
) {
    let violation = caught(workloads, &opening).unwrap_or_else(|| panic!("{name} was not caught"));
    let first = violation.message.lines().next().unwrap_or_default();
    report(&format!("planted bug, {name}: {first}"));
}

fn expect_caught(name: &str, opening: impl Fn(Arc<MemoryFs>) -> Options + Send + Sync + 'static) {
    expect_caught_by(&WORKLOADS.iter().collect::<Vec<_>>(), name, opening);
}

#[test]
fn planted_missing_directory_sync_is_caught() {
    let cases = [
        LeftOut::All,
        LeftOut::AfterTable,
        LeftOut::AfterLog,
        LeftOut::AfterCurrent,
        LeftOut::AfterDir,
    ];
    for left_out in cases {
        expect_caught(&format!("directory sync left out, {left_out:?}"), move |disk| {
            small_options(Arc::new(NoDirSync::new(disk, left_out)))
        });
    }
}

/// Returns the workloads with a reader of the change stream.
fn with_changes() -> Vec<&'static Workload> {
    WORKLOADS.iter().filter(|workload| workload.name.starts_with("changes-")).collect()
}

#[test]
fn planted_repeated_changes_are_caught() {
    expect_caught_by(&with_changes(), "changes returned twice", |disk| {
        small_options(disk).planted_bug(PlantedBug::RepeatChanges)
    });
}

#[test]
fn planted_skipped_changes_are_caught() {
    expect_caught_by(&with_changes(), "changes skipped", |disk| {
        small_options(disk).planted_bug(PlantedBug::SkipChanges)
    });
}

#[test]
fn planted_changes_before_their_sync_are_caught() {
    expect_caught_by(&with_changes(), "changes returned before their sync", |disk| {
        small_options(disk).planted_bug(PlantedBug::ReturnUnsyncedChanges)
    });
}

#[test]
fn planted_flush_before_log_sync_is_caught() {
    expect_caught("flush before log sync", |disk| {
        small_options(disk).planted_bug(PlantedBug::InstallFlushBeforeLogSync)
    });
}

#[test]
fn planted_early_orphan_deletion_is_caught() {
    expect_caught("orphans deleted early", |disk| {
        small_options(disk).planted_bug(PlantedBug::DeleteOrphansEarly)
    });
}

#[test]
fn planted_early_tombstone_drop_is_caught() {
    expect_caught("tombstone dropped early", |disk| {
        small_options(disk).planted_bug(PlantedBug::DropTombstoneEarly)
    });
}

/// A merge within level 0 with older data below it.
#[test]
fn planted_tombstone_drop_in_level_0_is_caught() {
    let workload = workload("merges-in-level0");
    expect_caught_by(&[workload], "tombstone dropped in level 0", |disk| {
        small_options(disk).planted_bug(PlantedBug::DropTombstoneEarly)
    });
}

#[test]
fn planted_merge_of_runs_apart_is_caught() {
    expect_caught_by(&[workload("size-tiered")], "runs that are not neighbors merged", |disk| {
        small_options(disk).planted_bug(PlantedBug::MergeApartRuns)
    });
}

#[test]
fn planted_removal_of_the_newest_tables_is_caught() {
    let caught = guarded(|| crash_everywhere(Some(PlantedBug::UnlinkNewestTables)));
    let error = caught.expect_err("the newest tables unlinked was not caught");
    let start: String = error.chars().take(80).collect();
    report(&format!("planted bug, newest tables unlinked: {start}"));
}

#[test]
fn planted_ingest_by_two_edits_is_caught() {
    expect_caught_by(&[workload("ingests")], "ingest by two edits", |disk| {
        small_options(disk).planted_bug(PlantedBug::IngestInParts)
    });
}

#[test]
fn planted_ingest_before_log_sync_is_caught() {
    expect_caught_by(&[workload("ingests")], "ingest before log sync", |disk| {
        small_options(disk).planted_bug(PlantedBug::IngestBeforeLogSync)
    });
}

/// By a snapshot that changes, sooner or later.
#[test]
fn planted_early_number_of_an_ingest_is_caught() {
    let caught = (0..200).find_map(|_| {
        let options = small_options(Arc::new(MemoryFs::new()));
        let options = options.worker_threads(1).planted_bug(PlantedBug::PublishIngestEarly);
        guarded(|| -> Result<u64, String> { Ok(read_beside_ingests(options, 100)) }).err()
    });
    let text = caught.expect("planted bug of ingests was not caught");
    report(&format!("planted bug, number of an ingest published early: {text}"));
}

#[test]
fn planted_unsynced_filter_install_is_caught() {
    expect_caught_by(&[workload("filters-rebuilt")], "filter before sync", |disk| {
        small_options(disk).planted_bug(PlantedBug::InstallFilterBeforeSync)
    });
}

#[test]
fn planted_early_filter_deletion_is_caught() {
    expect_caught_by(&[workload("filters-rebuilt")], "filter deleted early", |disk| {
        small_options(disk).planted_bug(PlantedBug::DeleteFilterEarly)
    });
}

/// Also those of prefix and range filters.
#[test]
fn planted_scan_filter_bugs_are_caught() {
    for bug in [PlantedBug::InstallFilterBeforeSync, PlantedBug::DeleteFilterEarly] {
        let name = format!("{bug:?} of prefix and range filters");
        expect_caught_by(&[workload("filters-of-scans")], &name, move |disk| {
            small_options(disk).planted_bug(bug)
        });
    }
}

#[test]
fn planted_bugs_of_blob_files_are_caught() {
    let workloads = [workload("blob-files"), workload("blob-files-rewritten")];
    let bugs = [
        PlantedBug::DeleteBlobFileEarly,
        PlantedBug::MisplaceBlobs,
        PlantedBug::OmitBlobFileFromCheckpoint,
    ];
    for bug in bugs {
        expect_caught_by(&workloads, &format!("{bug:?}"), move |disk| {
            small_options(disk).planted_bug(bug)
        });
    }
    expect_caught_by(&workloads, "blob files without a sync", |disk| {
        small_options(Arc::new(NoSync::of_files(disk, ".blob")))
    });
}

/// Values that the log refers to.
#[test]
fn planted_sync_of_the_log_without_its_values_is_caught() {
    let workloads = [workload("logged-values")];
    expect_caught_by(&workloads, "log synced without its values", |disk| {
        small_options(disk).planted_bug(PlantedBug::SyncLogWithoutValues)
    });
    expect_caught_by(&workloads, "values of the log without a sync", |disk| {
        small_options(Arc::new(NoSync::of_files(disk, ".blob")))
    });
    expect_caught_by(&workloads, "checkpoint without a blob file", |disk| {
        small_options(disk).planted_bug(PlantedBug::OmitBlobFileFromCheckpoint)
    });
}

/// Values in pieces, written from readers.
#[test]
fn planted_bugs_of_streamed_values_are_caught() {
    let workloads = [workload("streamed-values")];
    for bug in [PlantedBug::MisplaceBlobs, PlantedBug::IngestBeforeLogSync] {
        expect_caught_by(&workloads, &format!("{bug:?} of a stream"), move |disk| {
            small_options(disk).planted_bug(bug)
        });
    }
    expect_caught_by(&workloads, "streamed values without a sync", |disk| {
        small_options(Arc::new(NoSync::of_files(disk, ".blob")))
    });
}

/// The model finds by chance what the enumeration finds systematically.
#[test]
fn model_catches_planted_bugs() {
    let cases = [
        PlantedBug::InstallFlushBeforeLogSync,
        PlantedBug::DeleteOrphansEarly,
        PlantedBug::DropTombstoneEarly,
    ];
    for bug in cases {
        let mut story = Story::new(seed("planted bug", 1), Some(bug));
        let mut calls = 0;
        let told = guarded(|| -> Result<(), String> {
            while calls < 200_000 {
                story.call(calls);
                calls += 1;
            }
            Ok(())
        });
        let told = told.err().unwrap_or_else(|| panic!("{bug:?} was not caught"));
        let first = told.lines().next().unwrap_or_default();
        report(&format!("planted bug, {bug:?}, at call {calls} of the model: {first}"));
    }
}

#[test]
fn planted_watermark_before_the_sync_is_caught() {
    let seed = seed("planted bug", 1);
    let caught = cut_everywhere(seed, Some(PlantedBug::CountUnsyncedWrites));
    let message = caught.expect_err("the watermark before the sync was not caught");
    let first = message.lines().next().unwrap_or_default();
    report(&format!("planted bug, watermark before the sync: {first}"));
}
