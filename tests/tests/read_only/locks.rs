//! Concurrent opens of a store.

use std::{path::Path, sync::Arc};

use sievedb::{
    Error, Options,
    fs::{Fs, RealFs},
};
use sievedb_doubles::{Call, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{check_entries, failing, killed, reading};

const EACCES: i32 = 13;

fn is_locked<T>(outcome: &Result<T, Error>, dir: &Path) -> bool {
    matches!(outcome, Err(Error::Locked { path, .. }) if path == dir)
}

/// Several readers, or one writer.
#[test]
fn readers_share_a_store_and_writers_do_not() {
    let temporary = tempfile::tempdir().unwrap();
    let stores: [(&str, Arc<dyn Fs>, &Path); 2] = [
        ("real", Arc::new(RealFs), temporary.path()),
        ("memory", Arc::new(MemoryFs::new()), Path::new(STORE_DIR)),
    ];
    for (name, fs, dir) in stores {
        let options = || small_options(Arc::clone(&fs));
        let read = || options().read_only(true).open(dir);
        let verify = || Options::new().fs(Arc::clone(&fs)).verify(dir, |_| ());
        let writer = options().open(dir).unwrap();
        writer.insert("k", "v").unwrap();
        assert!(is_locked(&read(), dir), "{name}: a writer has it");
        assert!(is_locked(&read(), dir), "{name}: a refused reader took the lock away");
        assert!(is_locked(&verify(), dir), "{name}");
        assert!(is_locked(&options().open(dir), dir), "{name}");
        drop(writer);

        let (first, second) = (read().unwrap(), read().unwrap());
        assert!(verify().unwrap().is_good(), "{name}");
        for reader in [first, second] {
            assert!(is_locked(&options().open(dir), dir), "{name}: it is read");
            assert_eq!(reader.get("k").unwrap().as_deref(), Some(&b"v"[..]), "{name}");
            let mut scan = reader.iter();
            drop(reader);
            assert!(is_locked(&options().open(dir), dir), "{name}: an iterator is left");
            assert!(scan.next().is_some());
        }
        let writer = options().open(dir).unwrap();
        writer.insert("k", "w").unwrap();
    }
}

/// A copy of a store may lack its lock file in a directory without write permission. If the lock
/// file exists but is unreadable, a writer may exist.
#[test]
fn lock_file_may_be_missing_but_must_be_readable() {
    let disk = Arc::new(killed());
    let fs = failing(&disk, EACCES, &[Call::LockShared]);
    let unreadable = |outcome: Option<Error>| matches!(outcome, Some(Error::Io { op: "lock", path, .. }) if path.ends_with("LOCK"));
    assert!(unreadable(reading(fs.clone()).open(STORE_DIR).err()));
    assert!(unreadable(Options::new().fs(fs).verify(STORE_DIR, |_| ()).err()));

    disk.unlink(&Path::new(STORE_DIR).join("LOCK")).unwrap();
    let disk = Arc::new(disk.copy());
    let readers = [(); 2].map(|()| reading(disk.clone()).open(STORE_DIR).unwrap());
    readers.iter().for_each(check_entries);
    assert!(Options::new().fs(disk.clone()).verify(STORE_DIR, |_| ()).unwrap().is_good());
    assert_eq!(disk.journal(), [], "none is made");
}
