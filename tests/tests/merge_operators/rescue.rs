//! Operands survive a repair, a read-only open and a crash.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bytes::Bytes;
use sievedb::{Db, OlderValues, fs::Fs};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::settings::{STORE_DIR, small_options};

use super::{JoinByKey, options};

const NEW: &str = "data/new";

/// Writes operands over values on several levels, in level 0 and in the log.
fn store(fs: &Arc<MemoryFs>) -> BTreeMap<Bytes, Bytes> {
    let db = options(fs, Arc::new(JoinByKey)).open(STORE_DIR).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..4_u32 {
        for number in 0..40_u32 {
            let key = number.to_string();
            match (number + round) % 7 {
                0 => db.insert(&key, format!("v{round}")).unwrap(),
                1 => db.remove(&key).unwrap(),
                _ => db.merge(&key, format!("m{round}")).unwrap(),
            }
            db.merge(&key, "n").unwrap();
        }
        snapshots.push(db.snapshot());
        match round {
            0 => db.compact().unwrap(),
            1 | 2 => db.flush().unwrap(),
            _ => {}
        }
    }
    contents(&db)
}

fn contents(db: &Db) -> BTreeMap<Bytes, Bytes> {
    db.iter().map(Result::unwrap).collect()
}

#[test]
fn a_repair_copies_operands() {
    for (loses_manifest, is_registered) in [(false, true), (false, false), (true, true)] {
        let fs = Arc::new(MemoryFs::new());
        let want = store(&fs);
        if loses_manifest {
            for name in fs.list(Path::new(STORE_DIR)).unwrap() {
                if name == "CURRENT" || name.starts_with("MANIFEST-") {
                    fs.unlink(&Path::new(STORE_DIR).join(name)).unwrap();
                }
            }
        }
        let plain = || small_options(Arc::clone(&fs) as Arc<dyn Fs>);
        let registered = || plain().merge_operator(Arc::new(JoinByKey));
        let repairing = if is_registered { registered() } else { plain() };
        let report = repairing.repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
        assert_eq!((report.older, report.is_rebuilt), (0, loses_manifest), "{report:?}");
        let db = options(&fs, Arc::new(JoinByKey)).open(NEW).unwrap();
        assert_eq!(contents(&db), want, "{loses_manifest} {is_registered}");
        db.compact().unwrap();
        assert_eq!(contents(&db), want);
    }
}

#[test]
fn operands_survive_a_crash() {
    let fs = Arc::new(MemoryFs::new());
    let want = store(&fs);
    let crashed = Arc::new(fs.crash(fs.operations(), &Loss::Nothing));
    let db = options(&crashed, Arc::new(JoinByKey)).read_only(true).open(STORE_DIR).unwrap();
    assert_eq!(contents(&db), want);
    drop(db);
    let db = options(&crashed, Arc::new(JoinByKey)).open(STORE_DIR).unwrap();
    assert_eq!(contents(&db), want);
}
