//! Default memory budget.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use sievedb::{
    Db, Options,
    fs::{Fs, RealFs},
    options::{DEFAULT_MEMORY_BUDGET_MAX, DEFAULT_MEMORY_BUDGET_MIN},
    stats::BudgetSource::{self, ControlGroup, Fallback, PhysicalMemory, Set},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::STORE_DIR,
};

const MIB: u64 = 1 << 20;

/// An in-memory disk of a machine with these system files.
#[derive(Debug)]
struct Machine {
    disk: Arc<MemoryFs>,
    files: BTreeMap<&'static str, String>,
}

impl Layer for Machine {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn read_system_file(&self, path: &Path) -> io::Result<String> {
        let text = path.to_str().and_then(|path| self.files.get(path));
        text.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns the options of a store on `disk`, on a machine with this memory and control group limit.
fn options(disk: &Arc<MemoryFs>, memory_mib: Option<u64>, limit_mib: Option<u64>) -> Options {
    let mut files = BTreeMap::new();
    if let Some(mib) = memory_mib {
        files.insert("/proc/meminfo", format!("MemTotal: {} kB\n", mib << 10));
    }
    if let Some(mib) = limit_mib {
        files.insert("/proc/self/cgroup", "0::/store\n".to_owned());
        files.insert("/sys/fs/cgroup/store/memory.max", format!("{}\n", mib * MIB));
    }
    let fs = Layered(Machine { disk: Arc::clone(disk), files });
    Options::new().fs(Arc::new(fs)).worker_threads(0)
}

fn budget(db: &Db) -> (u64, BudgetSource) {
    let memory = db.stats().memory;
    (memory.budget_bytes / MIB, memory.budget_source.unwrap())
}

#[test]
fn n4_default_budget_follows_the_machine_at_each_open() {
    let disk = Arc::new(MemoryFs::new());
    let cases = [
        ("a server", Some(4_096), None, (512, PhysicalMemory)),
        ("a container", Some(4_096), Some(1_024), (128, ControlGroup)),
        ("a larger container", Some(4_096), Some(2_048), (256, ControlGroup)),
        ("a large server", Some(1 << 20), None, (1_024, PhysicalMemory)),
        ("a small one", Some(128), None, (64, PhysicalMemory)),
        ("an unknown one", None, None, (256, Fallback)),
    ];
    for (name, memory, limit, want) in cases {
        for read_only in [false, true] {
            let db = options(&disk, memory, limit).read_only(read_only).open(STORE_DIR);
            let db = db.unwrap();
            assert_eq!(budget(&db), want, "{name}");
            let memory = db.stats().memory;
            assert_eq!(memory.memtable_bytes_max, memory.budget_bytes / 4, "{name}");
        }
    }
}

#[test]
fn n4_set_budget_is_kept_and_none_means_default() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk, Some(4_096), None).memory_budget(100 * MIB).open(STORE_DIR).unwrap();
    assert_eq!(budget(&db), (100, Set));
    db.set_memory_budget(None).unwrap();
    assert_eq!(budget(&db), (512, PhysicalMemory));
    db.set_memory_budget(200 * MIB).unwrap();
    assert_eq!(budget(&db), (200, Set));
    assert!(db.set_memory_budget(MIB).is_err());
    assert_eq!(budget(&db), (200, Set), "a refused budget changes nothing");
    drop(db);
    let unset = options(&disk, Some(4_096), None).memory_budget(100 * MIB).memory_budget(None);
    assert_eq!(budget(&unset.open(STORE_DIR).unwrap()), (512, PhysicalMemory));
}

#[test]
fn n4_default_budget_suffices_for_all_workers() {
    let disk = Arc::new(MemoryFs::new());
    let small = || options(&disk, Some(128), None);
    let db = small().worker_threads(32).open(STORE_DIR).unwrap();
    assert_eq!(budget(&db), (128, PhysicalMemory), "4 MiB for each");
    drop(db);
    // 64 MiB are 16 for filters, 8 for writing and 24 for the cache.
    let db = small().memtable_bytes_max(160 * MIB).open(STORE_DIR).unwrap();
    assert_eq!(budget(&db), (160 + 16 + 8 + 24, PhysicalMemory));
    drop(db);
    let db = small().block_cache_bytes(160 * MIB).open(STORE_DIR).unwrap();
    assert_eq!(db.stats().memory.budget_bytes, u64::MAX);
}

/// Holds for any machine, even with unknown memory.
#[test]
fn n4_default_budget_of_this_machine_is_in_range() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let memory = db.stats().memory;
    let bounds = DEFAULT_MEMORY_BUDGET_MIN..=DEFAULT_MEMORY_BUDGET_MAX;
    assert!(bounds.contains(&memory.budget_bytes), "{memory:?}");
    let knows = RealFs.read_system_file(Path::new("/proc/meminfo")).is_ok();
    assert!(!knows || memory.budget_source != Some(Fallback), "{memory:?}");
}
