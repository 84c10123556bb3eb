//! The change stream of a follower.

use std::sync::Arc;

use sievedb::{ChangeRetention, Changes, Error, Options, changes::ChangeKind};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::following;

/// Returns the values that `changes` returns.
fn values(changes: &mut Changes) -> Result<Vec<u32>, Error> {
    let mut values = Vec::new();
    for batch in changes {
        for change in batch?.changes() {
            let ChangeKind::Insert { value, .. } = &change.kind else { continue };
            values.push(std::str::from_utf8(&value[..8]).unwrap().parse().unwrap());
        }
    }
    Ok(values)
}

fn retaining(disk: &Arc<MemoryFs>, bytes: u64) -> Options {
    small_options(disk.clone()).retain_changes(ChangeRetention::bytes(bytes))
}

/// Flushes and reopens move segments out of the log.
#[test]
fn change_stream_of_a_follower_returns_each_batch_once() {
    let disk = Arc::new(MemoryFs::new());
    let mut writer = retaining(&disk, 1 << 20).open(STORE_DIR).unwrap();
    let follower = following(disk.clone()).open(STORE_DIR).unwrap();
    let mut changes = follower.changes(follower.snapshot().sequence()).unwrap();
    let mut number = 0;
    for round in 0..60_u32 {
        let first = number;
        for _ in 0..round % 9 + 1 {
            writer.insert("key", format!("{number:08}{:0300}", 0)).unwrap();
            number += 1;
        }
        assert_eq!(values(&mut changes).unwrap(), [], "{round}: before the refresh");
        match round % 7 {
            2 => writer.flush().unwrap(),
            4 => writer.compact().unwrap(),
            5 => {
                writer.close().unwrap();
                writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
            }
            _ => {}
        }
        assert!(follower.refresh().unwrap());
        let want: Vec<_> = (first..number).collect();
        assert_eq!(values(&mut changes).unwrap(), want, "round {round}");
        if round % 10 == 9 {
            changes = follower.changes(changes.position()).unwrap();
        }
    }
}

/// The follower lists segments that the writer has dropped since.
#[test]
fn lost_changes_are_reported_and_never_skipped() {
    let disk = Arc::new(MemoryFs::new());
    let writer = retaining(&disk, 4 << 10).open(STORE_DIR).unwrap();
    let follower = following(disk.clone()).open(STORE_DIR).unwrap();
    writer.insert("key", format!("{:08}", 0)).unwrap();
    follower.refresh().unwrap();
    let mut changes = follower.changes(0).unwrap();
    let mut number = 1;
    let mut insert = |count: u32| {
        for _ in 0..count {
            writer.insert("key", format!("{number:08}{:0500}", 0)).unwrap();
            number += 1;
        }
        writer.flush().unwrap();
    };
    insert(4);
    follower.refresh().unwrap();
    insert(100);
    let gone = values(&mut changes);
    assert!(matches!(gone, Err(Error::FilesGone { .. })), "{gone:?}");
    assert!(changes.is_ended());
    let since = changes.position();
    assert!(follower.refresh().unwrap());
    let lost = follower.changes(since).map(drop);
    assert!(matches!(lost, Err(Error::ChangesLost { .. })), "{lost:?}");
    let oldest = follower.stats().changes_kept_after.unwrap();
    assert!(!values(&mut follower.changes(oldest).unwrap()).unwrap().is_empty());
}
