//! A snapshot unknown to a compaction reads nothing that the compaction drops.

use std::{
    sync::{Arc, Mutex as StdMutex},
    time::Duration,
};

use sievedb_format::SequenceNumber;

use super::explore;
use crate::{
    commit::{InFlight, PublishQueue, Write},
    read::snapshot_list::SnapshotList,
    sync::{Mutex, thread},
};

/// Input of a compaction. Of two versions at or below `visible` it drops the older one, unless a
/// number in `listed` lies between.
#[derive(Debug)]
struct Compaction {
    visible: SequenceNumber,
    listed: Vec<SequenceNumber>,
}

/// An open snapshot loses nothing to a compaction that lists it. It loses nothing to a compaction
/// that merges only entries visible to the snapshot.
#[test]
fn unlisted_snapshots_are_as_new_as_the_input() {
    explore(5000, || {
        let publish = &PublishQueue::new(0);
        let placed = &Mutex::new(0);
        let snapshots = &SnapshotList::default();
        let compactions = &StdMutex::new(Vec::<Compaction>::new());
        let check = |snapshot: SequenceNumber| {
            for Compaction { visible, listed } in &*compactions.lock().unwrap() {
                assert!(
                    snapshot >= *visible || listed.contains(&snapshot),
                    "the snapshot {snapshot} is missing in {listed:?}, listed at {visible}"
                );
            }
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    for _ in 0..2 {
                        let write = {
                            let mut placed = placed.lock();
                            *placed += 1;
                            let write = InFlight::new(*placed, *placed, Write::default());
                            let write = Arc::new(write);
                            publish.push(Arc::clone(&write));
                            write
                        };
                        publish.complete(&write);
                    }
                });
                scope.spawn(move || {
                    for _ in 0..2 {
                        let now = || (Duration::ZERO, 0);
                        let snapshot = snapshots.add(now, || publish.visible());
                        check(snapshot.sequence);
                        // A step of the schedule in the middle of the snapshot's life.
                        publish.visible();
                        check(snapshot.sequence);
                        snapshots.remove(snapshot);
                    }
                });
            }
            scope.spawn(move || {
                for _ in 0..2 {
                    // The input holds everything visible at this point; the list is made after it.
                    let visible = publish.visible();
                    let listed = snapshots.sequences();
                    compactions.lock().unwrap().push(Compaction { visible, listed });
                }
            });
        });
        assert_eq!(snapshots.sequences(), [], "all are closed");
    });
}
