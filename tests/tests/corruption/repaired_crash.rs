//! After a power cut, a repair without the manifest returns the same as one with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sievedb::{Db, Durability, KeyspaceOptions, OlderValues};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::rng::Rng;

use super::{
    lost_manifest::{Contents, contents, lose},
    repair::{NEW, options},
    sample::{Files, STORE_DIR, disk, files},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SEEDS: u64 = 12;
const CUTS: usize = 40;

fn small_tables() -> KeyspaceOptions {
    KeyspaceOptions::new().table_bytes(64 << 10).block_bytes(1 << 10)
}

/// Inserts or removes some of few keys, so that most entries replace others.
fn write(db: &Db, rng: &mut Rng, name: &str) {
    let keyspace = db.keyspace_with(name, &small_tables()).unwrap();
    let (first, count) = (rng.below(200) as u32, 1 + rng.below(60) as u32);
    let removes = rng.below(3) == 0;
    for key in first..first + count {
        let key = key.to_be_bytes();
        match removes {
            true => keyspace.remove(key).unwrap(),
            false => keyspace.insert(key, [rng.below(256) as u8; 40]).unwrap(),
        }
    }
}

fn remove_all(db: &Db, name: &str) {
    let keyspace = db.keyspace_with(name, &small_tables()).unwrap();
    for key in 0..260_u32 {
        keyspace.remove(key.to_be_bytes()).unwrap();
    }
}

/// Makes the next edit of the manifest fail.
fn fail_edit(fs: &FaultFs, disk: &MemoryFs, code: i32) {
    let names = files(disk);
    let manifest = names.keys().rfind(|name| name.starts_with("MANIFEST")).unwrap();
    fs.inject(Fault::new(code, Times::Once).calls(&[Call::Append]).suffix(manifest));
}

/// Opens the store and uses it for some steps.
fn live(disk: &Arc<MemoryFs>, rng: &mut Rng) {
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = options(disk).fs(fs.clone()).log_segment_bytes(4 << 10).open(STORE_DIR).unwrap();
    let mut pinned = Vec::new();
    for _ in 0..rng.below(14) {
        let name = ["a", "b"][rng.below(2)];
        match rng.below(14) {
            0..5 => write(&db, rng, name),
            5..8 => db.keyspace(name).unwrap().flush().unwrap(),
            8 => db.keyspace(name).unwrap().compact().unwrap(),
            9 => {
                remove_all(&db, name);
                db.keyspace(name).unwrap().compact().unwrap();
            }
            10 => pinned.push(db.keyspace(name).unwrap().iter()),
            11 => pinned.clear(),
            12 => drop(db.drop_keyspace(name)),
            _ => {
                write(&db, rng, name);
                fail_edit(&fs, disk, *rng.pick(&[EIO, ENOSPC]));
                // The store may be read-only.
                let keyspace = db.keyspace(name);
                if keyspace.and_then(|it| it.flush().and_then(|()| it.compact())).is_err() {
                    return;
                }
                fs.heal();
            }
        }
        if rng.below(3) == 0 {
            db.persist(Durability::Disk).unwrap();
        }
    }
}

/// Returns the contents by keyspace, without names that a repair cannot know.
fn by_keyspace(contents: &Contents, unnamed: &[String]) -> BTreeSet<(String, Contents)> {
    let mut by_name = BTreeMap::<String, Contents>::new();
    for ((name, key), value) in contents {
        let whole = by_name.entry(name.clone()).or_default();
        whole.insert((String::new(), key.clone()), value.clone());
    }
    let known = |name: String| if unnamed.is_empty() { name } else { String::new() };
    by_name.into_iter().map(|(name, whole)| (known(name), whole)).collect()
}

#[test]
fn n15_repair_after_a_power_cut_restores_no_older_value() {
    let (mut cases, mut failures) = (0, Vec::new());
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut fs = Arc::new(MemoryFs::with_seed(seed));
        for life in 0..4 {
            let before = fs.operations();
            live(&fs, &mut rng);
            let after = fs.operations();
            for cut in 0..CUTS {
                let at = before + rng.below(after - before + 1);
                let loss = match rng.below(4) {
                    0 => Loss::Nothing,
                    1 if fs.unsynced(at) > 0 => Loss::Alone(rng.below(fs.unsynced(at))),
                    _ => Loss::Random { seed: rng.number(), torn: rng.below(2) == 0 },
                };
                let crashed = files(&fs.crash(at, &loss));
                let failure = difference(&crashed);
                let case = format!("seed {seed}, life {life}, cut {cut} at {at}, {loss:?}");
                failures.extend(failure.map(|failure| format!("{case}: {failure}")));
                cases += 1;
            }
            if rng.below(2) == 0 {
                let at = before + rng.below(after - before + 1);
                fs = Arc::new(fs.crash(at, &Loss::Random { seed, torn: false }));
            }
        }
    }
    println!("{cases} power cuts before the manifest was lost");
    failures.truncate(8);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

pub(super) fn check(crashed: &Files, case: &str) {
    let failure = difference(crashed);
    assert_eq!(failure, None, "{case}");
}

/// Returns how a repair without the manifest differs from one with it.
fn difference(crashed: &Files) -> Option<String> {
    if !crashed.contains_key("CURRENT") {
        return None;
    }
    let fs = disk(crashed);
    let report = options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut).unwrap();
    assert!(report.lost.is_empty(), "a power cut is no damage: {report}");
    let opened = options(&fs).open(NEW).unwrap();
    let want = contents(&opened);
    let mut without = crashed.clone();
    lose(&mut without, &["MANIFEST", "CURRENT", "CLOSED"]);
    let fs = disk(&without);
    let report = match options(&fs).repair(STORE_DIR, NEW, OlderValues::LeaveOut) {
        Ok(report) => report,
        Err(_) if want.is_empty() => return None,
        Err(error) => return Some(error.to_string()),
    };
    let db = options(&fs).open(NEW).unwrap();
    let found = contents(&db);
    let unnamed = &report.keyspaces_unnamed;
    let names: Vec<_> = without.keys().collect();
    let (want, found) = (by_keyspace(&want, unnamed), by_keyspace(&found, unnamed));
    if want != found {
        let (found, want) = (lengths(&found), lengths(&want));
        return Some(format!("{found:?} and not {want:?} of {names:?}: {report}"));
    }
    let known = opened.keyspaces().unwrap();
    let back = db.keyspaces().unwrap().into_iter().find(|name| !known.contains(name));
    let back = back.filter(|_| unnamed.is_empty());
    back.map(|name| format!("{name:?} came back: {names:?}: {report}"))
}

fn lengths(of: &BTreeSet<(String, Contents)>) -> Vec<(&str, usize)> {
    of.iter().map(|(name, contents)| (&**name, contents.len())).collect()
}
