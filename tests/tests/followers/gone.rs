//! Files that the writer deletes while a follower reads them.

use std::sync::Arc;

use sievedb::{Error, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace, small_options};

use super::following;

const KEYS: u32 = 400;

/// Returns the number of read keys and of reads that failed because the file was gone.
fn read(results: impl Iterator<Item = Result<Option<bytes::Bytes>, Error>>) -> (usize, usize) {
    let (mut read, mut gone) = (0, 0);
    for result in results {
        match result {
            Ok(value) => read += usize::from(value.is_some()),
            Err(Error::FilesGone { path }) => {
                let path = path.to_string_lossy();
                assert!(path.ends_with(".sst") || path.ends_with(".blob"), "{path:?}");
                gone += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    (read, gone)
}

#[test]
fn deleted_tables_stay_readable_while_they_are_open() {
    for (files, may_fail) in [(100, false), (1, true)] {
        let disk = Arc::new(MemoryFs::new());
        let writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
        let fill = |round: u32| {
            for number in 0..KEYS {
                writer.insert(number.to_be_bytes(), format!("{round:0100}")).unwrap();
            }
            writer.compact().unwrap();
        };
        fill(1);
        let options = following(disk.clone() as Arc<dyn Fs>).block_cache_bytes(1 << 10);
        let follower = options.open_files_max(files).open(STORE_DIR).unwrap();
        let snapshot = follower.snapshot();
        fill(2);
        let all = || (0..KEYS).map(|number| follower.get(number.to_be_bytes()));
        let of_snapshot = || (0..KEYS).map(|number| snapshot.get(number.to_be_bytes()));
        let (found, gone) = read(all());
        assert_eq!(found + gone, KEYS as usize);
        assert_eq!(gone > 0, may_fail, "{files} files: {gone} of {KEYS}");
        assert!(follower.refresh().unwrap());
        assert_eq!(read(all()), (KEYS as usize, 0), "a refresh recovers");
        let (found, gone) = read(of_snapshot());
        assert_eq!(found + gone, KEYS as usize);
        assert_eq!(gone > 0, may_fail, "snapshots keep what is open");
    }
}

/// Also of a blob file, whose table may be open.
#[test]
fn deleted_blob_files_are_reported_as_gone() {
    let disk = Arc::new(MemoryFs::new());
    let keyspace = small_keyspace().blob_value_bytes(100);
    let options = small_options(disk.clone()).keyspace(keyspace.clone());
    let writer = options.open(STORE_DIR).unwrap();
    let fill = |round: u32| {
        for number in 0..KEYS {
            writer.insert(number.to_be_bytes(), format!("{round:0300}")).unwrap();
        }
        writer.compact().unwrap();
    };
    fill(1);
    let options = following(disk.clone() as Arc<dyn Fs>).keyspace(keyspace);
    // All tables are in the cache of blocks.
    let follower = options.block_cache_bytes(1 << 20).open_files_max(1).open(STORE_DIR).unwrap();
    assert_eq!(follower.iter().keys().count(), KEYS as usize);
    fill(2);
    let all = || (0..KEYS).map(|number| follower.get(number.to_be_bytes()));
    let (found, gone) = read(all());
    assert!(gone > 0 && found + gone == KEYS as usize, "{found} found, {gone} gone");
    assert!(follower.refresh().unwrap());
    assert_eq!(read(all()), (KEYS as usize, 0), "a refresh recovers");
}

/// A directory that was replaced by an older copy must not show the past as the present.
#[test]
fn older_copy_in_place_of_the_store_is_refused() {
    let disk = Arc::new(MemoryFs::new());
    let writer = small_options(disk.clone()).open(STORE_DIR).unwrap();
    writer.insert("a", "1").unwrap();
    writer.flush().unwrap();
    let older = disk.copy().contents();
    let follower = following(disk.clone()).open(STORE_DIR).unwrap();
    for number in 0..50 {
        writer.insert("a", format!("{number}")).unwrap();
    }
    writer.flush().unwrap();
    assert!(follower.refresh().unwrap());
    drop(writer);
    let now: Vec<_> = disk.contents().into_keys().collect();
    for path in now {
        disk.unlink(std::path::Path::new(&*path)).unwrap();
    }
    for (path, bytes) in older {
        disk.create(std::path::Path::new(&*path)).unwrap().append(&bytes).unwrap();
    }
    let refused = follower.refresh();
    assert!(matches!(refused, Err(Error::FollowerAhead { .. })), "{refused:?}");
    assert_eq!(follower.get("a").unwrap().as_deref(), Some(&b"49"[..]), "it shows the same");
    let again = following(disk).open(STORE_DIR).unwrap();
    assert_eq!(again.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}
