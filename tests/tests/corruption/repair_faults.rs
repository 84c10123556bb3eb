//! Repair while the operating system refuses calls.

use std::{
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use sievedb::{
    Db, Error, OlderValues, Options, RepairReport, Result,
    fs::{Fs, ReadFile, RealFs},
};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::layer::{Layer, Layered};

use super::{
    repair::{NEW, State, change, options, state, store, tables},
    sample::{Files, STORE_DIR, disk},
};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// A disk with one unreadable byte in a file.
#[derive(Debug)]
struct Scratched {
    inner: Arc<MemoryFs>,
    path: PathBuf,
    byte: u64,
}

#[derive(Debug)]
struct ScratchedFile {
    inner: Arc<dyn ReadFile>,
    byte: u64,
}

impl ReadFile for ScratchedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if (offset..offset + buf.len() as u64).contains(&self.byte) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.inner.read_at(buf, offset)
    }

    fn map(&self) -> io::Result<bytes::Bytes> {
        self.inner.map()
    }
}

impl Layer for Scratched {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path)?;
        match path.ends_with(&self.path) {
            true => Ok(Arc::new(ScratchedFile { inner, byte: self.byte })),
            false => Ok(inner),
        }
    }
}

fn repair(
    fs: Arc<dyn Fs>,
    disk: &Arc<MemoryFs>,
    older: OlderValues,
) -> Result<(RepairReport, State)> {
    let report = options(disk).fs(fs).repair(STORE_DIR, NEW, older)?;
    Ok((report, state(&options(disk).open(NEW).unwrap())))
}

#[test]
fn unreadable_bytes_count_as_lost() {
    let good = store();
    let [_, older, newer] = &tables(&good)[..] else { panic!("{:?}", good.keys()) };
    let log = good.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let shares = [(1, 3), (1, 2), (3, 5)];
    let within = |name: &String| good[name].len() as u64 - 1;
    let mut places: Vec<_> = [older, newer]
        .into_iter()
        .flat_map(|name| shares.map(|(part, of)| (name, within(name) * part / of)))
        .collect();
    places.extend([(newer, 20), (newer, within(newer)), (log, 20)]);
    for (name, byte) in places {
        for older in [OlderValues::LeaveOut, OlderValues::Keep] {
            let mut files: Files = good.clone();
            change(&mut files, name, |_| byte as usize);
            let damaged = disk(&files);
            let (want, left) = repair(damaged.clone(), &damaged, older).unwrap();
            let inner = disk(&good);
            let path = Path::new(STORE_DIR).join(name);
            let fs = Layered(Scratched { inner: inner.clone(), path, byte });
            let (report, found) = repair(Arc::new(fs), &inner, older).unwrap();
            let case = format!("byte {byte} of {name}, {older:?}: {report}{want}");
            // Header and footer are not required.
            assert_eq!(want.lost.len() as u64, 1 - want.tables_rescanned, "{case}");
            assert_eq!(report.lost.len(), want.lost.len(), "{case}");
            for (lost, want) in report.lost.iter().zip(&want.lost) {
                assert!(lost.message.starts_with("cannot read"), "{case}");
                assert_eq!(lost.keys, want.keys, "{case}");
            }
            assert_eq!((report.older, report.tables), (want.older, want.tables), "{case}");
            assert!(found == left, "{case}");
        }
    }
}

/// Returns a disk without `CURRENT`, and with an unreadable byte in the file `name`.
fn without_current(good: &Files, name: &str) -> (Arc<MemoryFs>, Arc<dyn Fs>) {
    let mut files = good.clone();
    files.remove("CURRENT");
    let inner = disk(&files);
    let path = Path::new(STORE_DIR).join(name);
    (inner.clone(), Arc::new(Layered(Scratched { inner, path, byte: 20 })))
}

#[test]
fn an_unreadable_manifest_without_current_is_lost() {
    let good = store();
    let whole = state(&options(&disk(&good)).open(STORE_DIR).unwrap());
    let manifest = good.keys().find(|name| name.starts_with("MANIFEST-")).unwrap();
    let (disk, fs) = without_current(&good, manifest);
    let (report, found) = repair(fs, &disk, OlderValues::LeaveOut).unwrap();
    assert!(report.is_rebuilt, "{report}");
    assert!(found == whole, "{report}");
}

#[test]
fn an_unreadable_log_does_not_hide_that_current_is_lost() {
    let mut good = store();
    for has_tables in [true, false] {
        let log = good.keys().rfind(|name| name.ends_with(".log")).unwrap().clone();
        let (disk, fs) = without_current(&good, &log);
        let error = options(&disk).fs(Arc::clone(&fs)).open(STORE_DIR).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { path, .. } if path.ends_with("CURRENT")),
            "{error:?}"
        );
        let report = options(&disk).fs(fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert!(!report.is_rebuilt, "{has_tables}: {report}");
        let [current] = &report.replaced[..] else { panic!("{has_tables}: {report}") };
        assert!(current.path.ends_with("CURRENT"), "{has_tables}: {report}");
        good.retain(|name, _| !name.ends_with(".sst"));
    }
}

#[test]
fn temporarily_unopenable_table_is_not_dropped() {
    let good = store();
    let table = tables(&good).pop().unwrap();
    let log = good.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let whole = state(&options(&disk(&good)).open(STORE_DIR).unwrap());
    for name in [&table, log] {
        for code in [EMFILE, ENFILE, EACCES, ENOMEM] {
            for times in [Times::Once, Times::ForGood] {
                let case = format!("{code} for {name}, {times:?}");
                let disk = disk(&good);
                let fs = Arc::new(FaultFs::new(disk.clone()));
                let path = format!("{STORE_DIR}/{name}");
                fs.inject(Fault::new(code, times).calls(&[Call::Open]).suffix(path));
                match repair(fs.clone(), &disk, OlderValues::LeaveOut) {
                    Ok((report, found)) => {
                        assert!(report.lost.is_empty() && found == whole, "{case}: {report}");
                        assert!([EMFILE, ENFILE].contains(&code), "{case}");
                    }
                    Err(Error::Io { path, .. }) => {
                        assert!(path.ends_with(name), "{case}: {path:?}");
                    }
                    Err(error) => panic!("{case}: {error:?}"),
                }
                assert!(fs.failures() > 0, "{case}");
            }
        }
    }
}

/// The new store has a part of the data until the repair ends.
#[test]
fn an_interrupted_repair_leaves_no_store_that_opens() {
    let disk = disk(&store());
    let open = |disk: MemoryFs| {
        options(&Arc::new(disk)).create_if_missing(false).open(NEW).map(|db| state(&db))
    };
    let began = disk.operations();
    options(&disk).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
    let ended = disk.operations();
    let whole = open(disk.copy()).unwrap();
    let step = ((ended - began) / 40).max(1);
    let mut refused = 0;
    for at in (began..ended).step_by(step).chain(ended - 5..=ended) {
        for loss in [Loss::Nothing, Loss::Everything] {
            match open(disk.crash(at, &loss)) {
                Ok(found) => assert_eq!(found, whole, "{at}, {loss:?}"),
                Err(Error::IncompleteRepair { .. }) => refused += 1,
                Err(Error::NoStore { .. }) => assert!(at < began + 10, "{at}, {loss:?}"),
                Err(error) => panic!("{at}, {loss:?}: {error:?}"),
            }
        }
    }
    assert!(refused > 20, "only {refused} stores were refused");
}

/// Without the filter of a damaged table, older values of many more keys are doubtful.
#[test]
fn a_filter_that_cannot_be_opened_for_now_is_not_lost() {
    let mut good = store();
    let table = tables(&good).pop().unwrap();
    change(&mut good, &table, |_| 300);
    let whole = disk(&good);
    let (want, found) = repair(whole.clone(), &whole, OlderValues::LeaveOut).unwrap();
    assert!(want.older > 0, "{want}");
    for code in [EACCES, ENOMEM] {
        for after in 0.. {
            let disk = disk(&good);
            let fs = Arc::new(FaultFs::new(disk.clone()));
            let fault = Fault::new(code, Times::Once).calls(&[Call::Open]).suffix(&table);
            fs.inject(fault.after(after));
            match repair(fs.clone(), &disk, OlderValues::LeaveOut) {
                Ok((report, state)) => {
                    assert_eq!(report.older, want.older, "{code} after {after}: {report}");
                    assert_eq!(state, found, "{code} after {after}");
                }
                Err(Error::Io { path, .. }) => assert!(path.ends_with(&table), "{path:?}"),
                Err(error) => panic!("{code} after {after}: {error:?}"),
            }
            if fs.failures() == 0 {
                assert!(after > 1, "{code}: the table was opened {after} times");
                break;
            }
        }
    }
}

#[test]
fn n15_repair_refuses_overlapping_directories() {
    let directory = tempfile::tempdir().unwrap();
    let outer = directory.path().join("outer");
    let (store, link) = (outer.join("store"), directory.path().join("link"));
    Db::open(&store).unwrap().close().unwrap();
    symlink(&store, &link).unwrap();
    let before = RealFs.list(&store).unwrap();
    for (from, to) in [
        (&store, &store.join("sub")),
        (&store, &store),
        (&store, &outer),
        (&link, &store.join("sub/sub")),
        (&store, &link.join("sub")),
        (&store, &directory.path().join("none/../link/./sub")),
        (&link, &outer),
    ] {
        let error = Options::new().repair(from, to, OlderValues::LeaveOut).unwrap_err();
        assert!(matches!(error, Error::DirectoriesOverlap { .. }), "{from:?}, {to:?}: {error:?}");
    }
    assert_eq!(RealFs.list(&store).unwrap(), before, "nothing is written");
    assert!(!RealFs.exists(&store.join("sub")).unwrap(), "no directory is created");
    // A directory whose name starts with that of the other one.
    let to = outer.join("store-2");
    assert!(Options::new().repair(&store, to, OlderValues::LeaveOut).unwrap().lost.is_empty());

    let fs = disk(&super::repair::store());
    for to in [STORE_DIR, "/db", "db/sub", "x/../db/sub", "."] {
        let error = options(&fs).repair(STORE_DIR, to, OlderValues::LeaveOut).unwrap_err();
        assert!(matches!(error, Error::DirectoriesOverlap { .. }), "{to}: {error:?}");
    }
}
