//! Filters that cannot be reloaded when memory is free again.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use sievedb::{
    Event, EventListener, FilterPolicy, PrefixExtractor,
    fs::{Fs, ReadFile},
};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};
use sievedb_tests::layer::{Layer, Layered};

use super::{KEYS, STORE_DIR, assert_all_readable, filter_bytes, grown, key, options, sum};

/// Records the tables whose filters were reported.
#[derive(Debug, Default)]
struct Reports(Mutex<Vec<u64>>);

impl EventListener for Reports {
    fn on_event(&self, event: &Event) {
        if let Event::FilterUnusable { table_id, .. } = event {
            self.0.lock().unwrap().push(*table_id);
        }
    }
}

/// A disk that blocks the threads that open a table, once it is armed.
#[derive(Debug, Default)]
struct HoldUp {
    disk: Arc<MemoryFs>,
    is_armed: AtomicBool,
    has_begun: AtomicBool,
    gate: Mutex<()>,
}

impl Layer for HoldUp {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let is_table = path.extension().is_some_and(|extension| extension == "sst");
        if is_table && self.is_armed.load(SeqCst) {
            self.has_begun.store(true, SeqCst);
            drop(self.gate.lock().unwrap());
        }
        self.disk.open(path)
    }
}

fn damage_tables(fs: &MemoryFs) {
    for (path, bytes) in fs.contents() {
        if path.ends_with(".sst") {
            let damaged: Vec<u8> = bytes.iter().map(|byte| byte ^ 0x55).collect();
            fs.replace(Path::new(&*path), damaged).unwrap();
        }
    }
}

/// A thread that waits for a filter change does not hold the manifest lock, which a new log segment
/// needs.
#[test]
fn writes_do_not_wait_for_filter_changes() {
    let fs = Arc::new(MemoryFs::new());
    drop(grown(&fs));
    let layered = Arc::new(Layered(HoldUp { disk: Arc::clone(&fs), ..HoldUp::default() }));
    let hold_up = &layered.0;
    let options = options(fs, FilterPolicy::default()).fs(Arc::clone(&layered) as _);
    // No flush: its table would wait for the filter change too.
    let options = options.worker_threads(2).log_segment_bytes(4 << 10).log_bytes_max(1 << 20);
    let db = options.open_files_max(1).filter_bytes_max(0).open(STORE_DIR).unwrap();
    let gate = hold_up.gate.lock().unwrap();
    hold_up.is_armed.store(true, SeqCst);
    db.set_filter_bytes_max(u64::MAX).unwrap();
    while !hold_up.has_begun.load(SeqCst) {
        thread::yield_now();
    }
    let are_written = thread::scope(|scope| {
        let extractor = Some(PrefixExtractor::FixedLength(4));
        let changing = scope.spawn(|| db.default_keyspace().set_prefix_extractor(extractor));
        // The wait is not observable. Without it, the test passes trivially.
        thread::sleep(Duration::from_millis(50));
        let (sender, receiver) = mpsc::channel();
        let db = &db;
        scope.spawn(move || {
            for number in 0..200 {
                db.insert(key(number), [7; 100]).unwrap();
            }
            sender.send(()).unwrap();
        });
        let are_written = receiver.recv_timeout(Duration::from_secs(120)).is_ok();
        assert!(!changing.is_finished(), "it waits for the change in flight");
        drop(gate);
        changing.join().unwrap().unwrap();
        are_written
    });
    assert!(are_written, "writes wait");
}

/// Loaded filters remain, the others may match. Each is reported once and rebuilt from the keys.
#[test]
fn filters_that_cannot_be_reloaded_are_reported_and_hide_nothing() {
    for (percent, name) in [(0, "nothing in memory"), (60, "some columns in memory")] {
        let fs = Arc::new(MemoryFs::new());
        let whole = filter_bytes(&grown(&fs));
        let reports = Arc::new(Reports::default());
        let options = options(fs.clone(), FilterPolicy::default()).listener(reports.clone());
        let options = options.open_files_max(1);
        let db = options.filter_bytes_max(whole * percent / 100).open(STORE_DIR).unwrap();
        // All blocks are cached from now on: file reads are reads of filters.
        assert_all_readable(&db, 0..KEYS);
        damage_tables(&fs);
        let before = filter_bytes(&db);
        let not_whole = db.stats().filters_not_whole;
        assert!(not_whole > 1, "{name}");
        for _ in 0..3 {
            db.set_filter_bytes_max(u64::MAX).unwrap();
        }
        let mut told = reports.0.lock().unwrap().clone();
        told.sort_unstable();
        let count = told.len();
        told.dedup();
        assert_eq!(told.len(), count, "{name}: each is reported once");
        // One open file may still have its old contents.
        assert!((not_whole - 1..=not_whole).contains(&(count as u64)), "{name}: {count}");
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().tables_with_unusable_filters, 0, "{name}");
        assert!(db.stats().background.filters_rebuilt >= count as u64, "{name}");
        let bytes = filter_bytes(&db);
        assert!((whole * 95 / 100..=whole * 105 / 100).contains(&bytes), "{name}: {bytes}");
        assert!(sum(&db, |level| level.filter_bytes) >= before, "{name}: what was there stays");
        assert_all_readable(&db, 0..KEYS);
        // Loaded parts can still be dropped.
        db.set_filter_bytes_max(before / 2).unwrap();
        assert!(filter_bytes(&db) <= before / 2, "{name}");
        assert_all_readable(&db, 0..KEYS / 10);
    }
}

/// Their data are good: a rebuild would read all keys for nothing.
#[test]
fn filters_are_reloaded_after_a_shortage_of_memory() {
    const ENOMEM: i32 = 12;
    let fs = Arc::new(MemoryFs::new());
    let whole = filter_bytes(&grown(&fs));
    let faults = Arc::new(FaultFs::new(fs));
    let reports = Arc::new(Reports::default());
    let options = options(faults.clone(), FilterPolicy::default()).listener(reports.clone());
    let db = options.filter_bytes_max(0).open(STORE_DIR).unwrap();
    faults.inject(Fault::new(ENOMEM, Times::ForGood).calls(&[Call::ReadAt]).suffix(".sst"));
    db.set_filter_bytes_max(u64::MAX).unwrap();
    assert!(faults.failures() > 0 && filter_bytes(&db) < whole, "none can be read");
    faults.heal();
    db.wait_for_background().unwrap();
    let bytes = filter_bytes(&db);
    assert!((whole * 95 / 100..=whole * 105 / 100).contains(&bytes), "{bytes}");
    assert!(reports.0.lock().unwrap().is_empty());
    assert_eq!(db.stats().background.filters_rebuilt, 0);
}
