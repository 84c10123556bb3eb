//! A temporarily full disk, and retries by workers.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod recovery;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use sievedb::{
    Durability, Error, Event, EventListener,
    clock::{Clock as _, SystemClock},
    fs::Fs,
    planted::PlantedBug,
};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};
use sievedb_tests::settings::{STORE_DIR, report, small_keyspace, small_options};

const ENOSPC: i32 = 28;
const WORKERS: usize = 8;
/// Attempts of each worker in a second. One more is allowed for timing.
const TRIES_MAX: f64 = 2.0;

/// Counts reports of a full disk.
#[derive(Debug, Default)]
struct NoSpaceCount(AtomicUsize);

impl EventListener for NoSpaceCount {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::NoSpace { .. }) {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

/// A process that ignores `SIGXFSZ`, such as Python, gets an error beyond `ulimit -f`.
#[test]
fn a_limit_of_file_lengths_is_handled_as_a_full_disk() {
    const EFBIG: i32 = 27;
    for kind in [".log", ".sst", "MANIFEST"] {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let db = small_options(fs.clone()).worker_threads(0).open(STORE_DIR).unwrap();
        let names = fs.list(Path::new(STORE_DIR)).unwrap();
        let suffix = names.into_iter().find(|name| name.starts_with(kind));
        let suffix = suffix.as_deref().unwrap_or(kind);
        let fault = Fault::new(EFBIG, Times::Once).calls(&[Call::Append]).suffix(suffix);
        fs.inject(fault.written_bytes(5));
        let written = db.insert("a", "1").and_then(|()| db.flush());
        assert!(written.unwrap_err().is_no_space(), "{suffix}");
        db.insert("b", "2").unwrap();
        db.flush().unwrap();
        assert_eq!(db.stats().read_only, None, "{suffix}");
        assert!(db.contains_key("b").unwrap());
    }
}

/// Unlinking the output of a failed step must not trigger retries: two workers could keep processor
/// and disk busy.
#[test]
fn workers_pause_on_a_full_disk_and_resume() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let listener = Arc::<NoSpaceCount>::default();
    let options = small_options(fs.clone())
        .clock(Arc::new(SystemClock::new()))
        .worker_threads(WORKERS)
        .listener(listener.clone());
    let db = options.open(STORE_DIR).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
    let mut acknowledged = Vec::new();
    let refused = (0..100_000u32).find_map(|number| {
        let written = db.insert(number.to_be_bytes(), [7; 100]);
        acknowledged.extend(written.is_ok().then_some(number));
        written.err()
    });
    assert!(refused.expect("writes must stop at some time").is_no_space());

    let (clock, before) = (SystemClock::new(), fs.failures());
    thread::sleep(Duration::from_secs(1));
    let tries = fs.failures() - before;
    let seconds = clock.now().as_secs_f64();
    let told = listener.0.load(Relaxed);
    report(&format!("full disk: {tries} attempts in {seconds:.1} s, reported {told} times"));
    assert!(tries > 0, "no attempt was repeated");
    let tries_max = WORKERS as f64 * (TRIES_MAX * seconds + 1.0);
    assert!(tries as f64 <= tries_max, "{tries} attempts in {seconds:.1} s");
    assert_eq!(told, 1, "the disk became full once");
    assert!(db.flush().unwrap_err().is_no_space(), "a waiting caller is notified");

    fs.heal();
    db.flush().unwrap();
    db.insert("more", "").unwrap();
    for number in acknowledged {
        assert!(db.contains_key(number.to_be_bytes()).unwrap(), "{number} was acknowledged");
    }
    assert!(db.stats().read_only.is_none());
}

/// If several callers wait for a compaction, the first failure report must not count as success for
/// the others.
#[test]
fn compaction_without_space_reports_failure_to_all_waiters() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let options = small_options(fs.clone()).clock(Arc::new(SystemClock::new())).worker_threads(2);
    // An idle compaction would leave nothing to compact.
    let db = options.idle_compactions(false).open(STORE_DIR).unwrap();
    for number in 0..2u8 {
        db.insert("key", [number]).unwrap();
        db.flush().unwrap();
    }
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".sst"));
    for round in 0..20 {
        let outcomes = thread::scope(|scope| {
            let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| db.compact())).collect();
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for outcome in outcomes {
            let full = outcome.as_ref().is_err_and(|error| error.is_no_space());
            assert!(full, "round {round}: {outcome:?}, {:?}", db.stats().keyspaces);
        }
    }
    fs.heal();
    db.compact().unwrap();
    let tables: Vec<_> = db.stats().keyspaces.iter().map(|keyspace| keyspace.tables).collect();
    assert_eq!(tables, [1]);
}

/// A new segment after a flush needs space. Without space, the flush succeeds and the old segments
/// are deleted.
#[test]
fn flush_needs_no_space_for_a_new_log_segment() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let keyspace = small_keyspace().memtable_bytes(64 << 10);
    let options = small_options(fs.clone()).log_bytes_max(1 << 20).keyspace(keyspace);
    let db = options.open(STORE_DIR).unwrap();
    for number in 0..200_u32 {
        db.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
    assert!(db.stats().log_segments > 3, "{}", db.stats());
    fs.inject(
        Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Create, Call::Append]).suffix(".log"),
    );
    db.flush().unwrap();
    assert!(fs.failures() > 0, "it was tried");
    assert_eq!(db.stats().log_segments, 1);
    assert!(db.insert("more", "").unwrap_err().is_no_space());
    fs.heal();
    db.insert("more", "").unwrap();
    assert!(db.contains_key("more").unwrap() && db.stats().read_only.is_none());
}

#[test]
fn batch_refused_by_a_full_disk_can_be_committed_again() {
    let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    let mut batch = db.batch();
    for key in 0..10_u8 {
        batch.insert(&db, [key], [key; 20]).unwrap();
    }
    batch.remove(&db, [3]).unwrap();
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&Call::GROWING));
    for durability in [Durability::OsBuffer, Durability::Disk] {
        assert!(batch.commit(durability).unwrap_err().is_no_space());
        assert_eq!(batch.len(), 11);
        assert!(db.iter().next().is_none(), "nothing of it is visible");
    }
    fs.heal();
    batch.commit(Durability::Disk).unwrap();
    assert!(batch.is_empty());
    let found: Vec<_> = db.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(found.len(), 9);
    assert!(found.iter().all(|(key, value)| key[0] != 3 && value[..] == [key[0]; 20]));
}

/// Returns the disks that a power cut can leave after a close and a reopen, each with one lost
/// unsynced operation. Before, the creation of a log segment had its effect and yet reported a full
/// disk.
fn disks_after_a_reused_id(planted: Option<PlantedBug>) -> Vec<MemoryFs> {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let open = || {
        let options = small_options(fs.clone()).durability(Durability::Disk);
        let options = match planted {
            Some(bug) => options.planted_bug(bug),
            None => options,
        };
        options.open(STORE_DIR).unwrap()
    };
    let db = open();
    db.insert("a", "1").unwrap();
    db.flush().unwrap();
    db.insert("b", "1").unwrap();
    db.flush().unwrap();
    // The first fault ends the segment, the second one fails the creation of the next.
    let full = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log");
    for written_bytes in [0, usize::MAX] {
        fs.inject(full.clone().written_bytes(written_bytes));
        assert!(db.insert("c", "1").unwrap_err().is_no_space());
    }
    db.close().unwrap();
    drop(open());
    let at = disk.operations();
    (0..disk.unsynced(at)).map(|lost| disk.crash(at, &Loss::Alone(lost))).collect()
}

#[test]
fn n3_segment_with_a_lost_unlink_is_an_orphan() {
    let disks = disks_after_a_reused_id(None);
    assert!(!disks.is_empty(), "the power cut must lose something");
    for (lost, disk) in disks.into_iter().enumerate() {
        let db = small_options(Arc::new(disk)).open(STORE_DIR);
        let db = db.unwrap_or_else(|error| panic!("operation {lost} is lost: {error}"));
        assert!(db.contains_key("a").unwrap() && db.contains_key("b").unwrap());
    }
    let bug = PlantedBug::AdoptSegmentBelowFloor;
    let refused =
        |disk| small_options(Arc::new(disk)).planted_bug(bug).open(STORE_DIR).map(drop).is_err();
    assert!(disks_after_a_reused_id(Some(bug)).into_iter().any(refused), "the bug is caught");
}

/// A retry of a flush that cannot write the log must not leave another table.
#[test]
fn n6_flush_without_space_for_the_log_leaves_no_table() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = small_options(fs.clone()).durability(Durability::Memory).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    fs.inject(Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Append]).suffix(".log"));
    for _ in 0..4 {
        assert!(db.flush().unwrap_err().is_no_space());
    }
    let tables = disk.contents().keys().filter(|path| path.ends_with(".sst")).count();
    assert_eq!(tables, 0, "tables that no version names");
    fs.heal();
    db.flush().unwrap();
    assert!(db.contains_key("a").unwrap());
}

/// A manifest that `CURRENT` names must not be deleted because the rename reported an error.
#[test]
fn rename_failed_with_effect_loses_no_store() {
    let disk = Arc::new(MemoryFs::new());
    let db = small_options(disk.clone()).open(STORE_DIR).unwrap();
    db.insert("a", "1").unwrap();
    drop(db);
    for errno in [ENOSPC, 5] {
        let disk = Arc::new(disk.copy());
        let fs = Arc::new(FaultFs::new(disk.clone()));
        fs.inject(Fault::new(errno, Times::Once).calls(&[Call::Rename]).carried_out());
        // The open may fail; the store must open later.
        drop(small_options(fs.clone()).open(STORE_DIR));
        let db = small_options(disk).open(STORE_DIR).unwrap();
        assert!(db.contains_key("a").unwrap(), "os error {errno}");
    }
}

/// Makes the next append to a file with this suffix fail with a full disk, after a partial write.
fn fill_disk(fs: &FaultFs, suffix: &str) {
    let full = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(suffix);
    fs.inject(full.written_bytes(5));
}

#[test]
fn n2_clean_close_marks_a_log_ended_by_a_full_disk_as_synced() {
    for is_full in [false, true] {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(FaultFs::new(disk.clone()));
        let db = small_options(fs.clone()).durability(Durability::Disk).open(STORE_DIR).unwrap();
        for number in 0..5u8 {
            db.insert([number], "value").unwrap();
        }
        if is_full {
            fill_disk(&fs, ".log");
            assert!(db.insert("more", "").unwrap_err().is_no_space());
        }
        db.close().unwrap();
        let names = disk.list(STORE_DIR.as_ref()).unwrap();
        let log = names.iter().rfind(|name| name.ends_with(".log")).unwrap();
        let path = Path::new(STORE_DIR).join(log);
        let mut bytes = disk.read(&path).unwrap().to_vec();
        let last = bytes.windows(5).rposition(|window| window == b"value").unwrap();
        bytes[last] ^= 1;
        disk.replace(&path, bytes).unwrap();
        let error = small_options(disk).open(STORE_DIR).map(drop).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "full: {is_full}: {error:?}");
    }
}

#[test]
fn n2_clean_close_replaces_a_manifest_ended_by_a_full_disk() {
    let disk = Arc::new(MemoryFs::new());
    let fs = Arc::new(FaultFs::new(disk.clone()));
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    for _ in 0..2 {
        db.insert("a", "1").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let manifests = || {
        let names = disk.list(STORE_DIR.as_ref()).unwrap().into_iter();
        names.filter(|name| name.starts_with("MANIFEST-")).collect::<Vec<_>>()
    };
    // The log is empty, so that only the state of the manifest requires an edit.
    let db = small_options(fs.clone()).open(STORE_DIR).unwrap();
    fill_disk(&fs, &manifests()[0]);
    assert!(db.compact().unwrap_err().is_no_space());
    assert_eq!(fs.failures(), 1);
    db.close().unwrap();
    let closed = manifests();
    assert_eq!(closed.len(), 1, "{closed:?}");
    drop(small_options(disk.clone()).open(STORE_DIR).unwrap());
    assert_eq!(manifests(), closed, "the close vouches for the manifest, which is kept");
}
