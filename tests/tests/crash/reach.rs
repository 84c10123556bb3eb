//! Workloads reach the state in their name; otherwise their crashes prove nothing.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use sievedb::{Event, EventListener, stats::BackgroundStats};
use sievedb_doubles::Operation;
use sievedb_tests::{enumerate::record, settings::small_options, workload::workload};

#[derive(Debug, Default)]
struct Reached {
    logs: usize,
    reserved: usize,
    manifests: usize,
    tables: usize,
    tables_unlinked: usize,
    filters: usize,
    filters_unlinked: usize,
    blob_files: usize,
    blob_files_unlinked: usize,
    merges_in_level0: usize,
    background: BackgroundStats,
}

/// Counts merges of runs of level 0 into another run of level 0.
#[derive(Debug, Default)]
struct MergesInLevel0(AtomicUsize);

impl EventListener for MergesInLevel0 {
    fn on_event(&self, event: &Event) {
        if let Event::Compacted { level: 0, .. } = event {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

type Holds = fn(&Reached) -> bool;

fn run(name: &str) -> Reached {
    let merges = Arc::<MergesInLevel0>::default();
    let listener = merges.clone();
    let recorder =
        record(workload(name), &move |disk| small_options(disk).listener(listener.clone()))
            .unwrap_or_else(|violation| panic!("{violation}"));
    let mut reached = Reached::default();
    for operation in recorder.disk().journal() {
        match operation {
            Operation::Create { path } if path.ends_with(".log") => reached.logs += 1,
            Operation::Reserve { .. } => reached.reserved += 1,
            Operation::Create { path } if path.ends_with(".sst") => reached.tables += 1,
            Operation::Create { path } if path.contains("MANIFEST-") => reached.manifests += 1,
            Operation::Unlink { path } if path.ends_with(".sst") => reached.tables_unlinked += 1,
            Operation::Create { path } if path.ends_with(".filter") => reached.filters += 1,
            Operation::Create { path } if path.ends_with(".blob") => reached.blob_files += 1,
            Operation::Unlink { path } if path.ends_with(".blob") => {
                reached.blob_files_unlinked += 1;
            }
            Operation::Unlink { path } if path.ends_with(".filter") => {
                reached.filters_unlinked += 1;
            }
            _ => {}
        }
    }
    reached.background = recorder.background();
    reached.merges_in_level0 = merges.0.load(Relaxed);
    reached
}

#[test]
fn workloads_reach_their_named_state() {
    let cases: [(&str, Holds); 23] = [
        ("reopen-flushed", |reached| reached.manifests == 1 && reached.logs >= 5),
        ("log-rotation", |reached| reached.logs >= 3 && reached.reserved >= 1),
        ("log-pinned", |reached| reached.logs >= 4 && reached.background.flushes >= 2),
        ("manifest-growth", |reached| reached.manifests >= 2),
        ("flush", |reached| reached.background.flushes >= 3),
        ("flush-by-size", |reached| reached.background.flushes >= 2),
        ("compaction", |reached| reached.background.compactions >= 2),
        ("compaction-by-count", |reached| reached.background.compactions >= 1),
        ("trivial-moves", |reached| reached.background.trivial_moves >= 1),
        ("tombstones-above", |reached| reached.background.compactions >= 3),
        ("merges-in-level0", |reached| reached.merges_in_level0 >= 2),
        ("drop", |reached| reached.tables_unlinked >= 1),
        ("filters-rebuilt", |reached| reached.filters >= 5 && reached.filters_unlinked >= 5),
        ("filters-compacted", |reached| reached.filters >= 2 && reached.filters_unlinked >= 2),
        ("filters-of-scans", |reached| reached.filters >= 8 && reached.filters_unlinked >= 8),
        ("range-removals-drop-tables", |reached| reached.tables_unlinked >= 5),
        ("merge-folded-by-compactions", |reached| reached.background.compactions >= 3),
        ("logged-values", |reached| reached.blob_files >= 4 && reached.blob_files_unlinked >= 2),
        ("blob-files", |reached| reached.blob_files >= 3),
        ("blob-files-rewritten", |reached| reached.blob_files_unlinked >= 2),
        ("conditional-queue", |reached| reached.background.compactions >= 1),
        ("expiring-values", |reached| reached.tables >= 5 && reached.tables_unlinked >= 4),
        ("held-ranges", |reached| reached.tables_unlinked >= 3 && reached.tables >= 5),
    ];
    for (name, holds) in cases {
        let reached = run(name);
        assert!(holds(&reached), "{name}: {reached:?}");
    }
}
