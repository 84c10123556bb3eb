//! A compaction that reads a damaged block quarantines the table, and other work continues.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use sievedb::{
    Compression, Db, Error, Event, EventListener, Keyspace, KeyspaceOptions, Options,
    VerifyProblemKind, clock::ManualClock, fs::Fs as _,
};
use sievedb_doubles::{Call, Fault, FaultFs, MemoryFs, Times};

use super::{
    forge::filter_place,
    sample::{STORE_DIR, disk, files},
};

pub(super) const KEYS: u32 = 400;
/// Every round writes all keys except multiples of this.
const KEPT: u32 = 7;
const ROUNDS: u32 = 30;

/// Reported quarantined tables, and whether the store became read-only.
#[derive(Debug, Default)]
pub(super) struct Reports(Mutex<(Vec<u64>, bool)>);

impl EventListener for Reports {
    fn on_event(&self, event: &Event) {
        let mut reports = self.0.lock().unwrap();
        match event {
            Event::TableQuarantined { table_id, error, .. } => {
                assert!(matches!(error, Error::Corrupt { .. } | Error::Io { .. }), "{error:?}");
                reports.0.push(*table_id);
            }
            Event::ReadOnly { .. } => reports.1 = true,
            _ => {}
        }
    }
}

struct Fixture {
    fs: Arc<MemoryFs>,
    reports: Arc<Reports>,
    db: Db,
    accounts: Keyspace,
}

impl Fixture {
    fn open(fs: Arc<MemoryFs>, workers: usize) -> Self {
        let reports = Arc::<Reports>::default();
        let options = Options::new().fs(fs.clone()).worker_threads(workers);
        let db = options.listener(reports.clone()).open(STORE_DIR).unwrap();
        let small = KeyspaceOptions::new().block_bytes(1 << 10).compression(Compression::None);
        let accounts = db.keyspace_with("accounts", &small).unwrap();
        Self { fs, reports, db, accounts }
    }

    /// Reopens the store, with a flipped byte in the middle of its `nth` table.
    fn damage(self, nth: usize, workers: usize) -> Self {
        let fs = self.fs.clone();
        drop(self);
        let mut files = files(&fs);
        let mut tables = files.iter_mut().filter(|(name, _)| name.ends_with(".sst"));
        let (_, table) = tables.nth(nth).unwrap();
        let mut bytes = table.to_vec();
        bytes[table.len() / 3] ^= 1;
        *table = bytes.into();
        Self::open(disk(&files), workers)
    }

    /// Writes a run of level 0.
    fn write(&self, round: u32) {
        for key in (0..KEYS).filter(|key| round == 0 || key % KEPT > 0) {
            self.accounts.insert(key.to_be_bytes(), value(key, round)).unwrap();
        }
        self.accounts.flush().unwrap();
        self.db.insert(round.to_be_bytes(), "").unwrap();
        self.db.flush().unwrap();
    }

    /// Checks all keys after `round`. Returns the number of unreadable keys.
    fn check(&self, round: u32) -> usize {
        let is_wrong = |key: &u32| match self.accounts.get(key.to_be_bytes()) {
            Ok(found) => {
                let round = if key.is_multiple_of(KEPT) { 0 } else { round };
                assert_eq!(found.as_deref(), Some(&value(*key, round)[..]), "{key}");
                false
            }
            Err(error) => {
                let is_kept = key.is_multiple_of(KEPT);
                assert!(matches!(error, Error::Corrupt { .. }) && is_kept, "{error:?}");
                true
            }
        };
        (0..KEYS).filter(is_wrong).count()
    }
}

fn value(key: u32, round: u32) -> Vec<u8> {
    let mut value = vec![key as u8; 60];
    value[..4].copy_from_slice(&round.to_be_bytes());
    value
}

/// The damaged run is one of several in level 0, or one in a deep level.
#[test]
fn n7_table_with_a_damaged_block_is_quarantined_and_writes_succeed() {
    for (name, runs, compacts, nth) in [
        ("the oldest run of level 0", 3, false, 0),
        ("in the middle of level 0", 3, false, 1),
        ("the newest run of level 0", 3, false, 2),
        ("the deepest level", 1, true, 0),
    ] {
        for workers in [0, 2] {
            let fixture = Fixture::open(Arc::new(MemoryFs::with_seed(1)), 0);
            (0..runs).for_each(|round| fixture.write(round));
            if compacts {
                fixture.accounts.compact().unwrap();
            }
            // The default keyspace has tables too.
            let before = fixture.db.stats().keyspaces;
            assert_eq!(before.len(), 2);
            let ids: Vec<_> = (0..10).filter(|&nth| is_of_accounts(&fixture, nth)).collect();
            let mut fixture = fixture.damage(ids[nth], workers);
            let mut lost = None;
            let mut round = runs;
            for opening in 0..2 {
                for _ in 0..ROUNDS {
                    fixture.write(round);
                    fixture.check(round);
                    round += 1;
                    let stats = fixture.db.stats();
                    assert_eq!(stats.read_only, None, "{name}");
                    fixture.db.wait_for_background().unwrap();
                    assert_eq!(fixture.db.stats().write_delay_us, 0, "{name}");
                }
                let now = fixture.check(round - 1);
                assert_eq!(*lost.get_or_insert(now), now, "{name}: no key more is lost");

                let stats = fixture.db.stats();
                let reports = fixture.reports.0.lock().unwrap().clone();
                assert_eq!(reports, (vec![stats.quarantined[0].table_id], false), "{name}");
                assert_eq!(stats.quarantined.len(), 1, "{name}");
                let table = &stats.quarantined[0];
                assert_eq!(table.keyspace, "accounts");
                let text = stats.to_string();
                assert!(text.contains("1 table is quarantined"), "{text}");
                assert!(text.contains(&table.path.display().to_string()), "{text}");
                let runs = stats.levels[0].runs;
                assert!(runs <= 16, "{name}, opening {opening}: {runs} runs");
                assert!(stats.background.compactions >= 8, "{name}: {stats}");

                let report = fixture.db.verify().unwrap();
                assert_eq!(report.quarantined, stats.quarantined, "{name}");
                assert_eq!(report.problems.len(), 1, "{name}: {report}");
                assert!(report.to_string().contains("quarantined: "), "{report}");

                let error = fixture.accounts.compact().unwrap_err();
                assert!(matches!(&error, Error::Corrupt { path, .. } if *path == table.path));
                fixture.accounts.insert("after", "").unwrap();
                // The other keyspace is compacted nevertheless.
                assert!(matches!(fixture.db.compact(), Err(Error::Corrupt { .. })));
                let other = &fixture.db.stats().keyspaces[1];
                assert_eq!((&*other.name, other.runs), ("default", 1));
                fixture.db.wait_for_background().unwrap();
                let fs = fixture.fs.clone();
                drop(fixture);
                fixture = Fixture::open(fs, workers);
            }
        }
    }
}

/// Returns whether the `nth` table is one of the keyspace `accounts`, whose tables are larger.
fn is_of_accounts(fixture: &Fixture, nth: usize) -> bool {
    let files = files(&fixture.fs);
    let mut tables = files.iter().filter(|(name, _)| name.ends_with(".sst"));
    tables.nth(nth).is_some_and(|(_, table)| table.len() > 10_000)
}

/// The Linux error number.
const EIO: i32 = 5;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;

/// A store of three runs with reads that can fail.
pub(super) struct Failing {
    disk: Arc<MemoryFs>,
    pub(super) faults: Arc<FaultFs>,
    pub(super) clock: Arc<ManualClock>,
    reports: Arc<Reports>,
    pub(super) db: Db,
}

impl Failing {
    /// Creates a store without workers.
    fn new() -> Self {
        let reports = Arc::<Reports>::default();
        Self::open(0, Arc::new(ManualClock::new()), &reports, reports.clone())
    }

    pub(super) fn open(
        workers: usize,
        clock: Arc<ManualClock>,
        reports: &Arc<Reports>,
        listener: Arc<dyn EventListener>,
    ) -> Self {
        let disk = Arc::new(MemoryFs::with_seed(1));
        let faults = Arc::new(FaultFs::new(disk.clone()));
        let options = Options::new().fs(faults.clone()).worker_threads(workers);
        let options = options.clock(clock.clone()).idle_compactions(false).listener(listener);
        let db = options.open(STORE_DIR).unwrap();
        let failing = Self { disk, faults, clock, reports: Arc::clone(reports), db };
        (0..3).for_each(|run| failing.write(run));
        failing
    }

    /// Writes a run of level 0. The fourth makes a compaction due.
    fn write(&self, run: u32) {
        for key in 0..KEYS {
            self.db.insert(key.to_be_bytes(), value(key, run)).unwrap();
        }
        self.db.flush().unwrap();
    }

    /// Makes reads of the oldest table fail after the first `after` reads.
    pub(super) fn fail_reads(&self, times: Times, after: usize) {
        self.fail_reads_with(EIO, times, after);
    }

    /// Damages the point filter of the oldest table.
    fn damage_filter(&self) {
        let path = Path::new(STORE_DIR).join(self.oldest_table());
        let mut bytes = self.disk.read(path.to_str().unwrap()).unwrap().to_vec();
        let place = filter_place(&bytes).unwrap();
        bytes[usize::midpoint(place.start, place.end)] ^= 0x10;
        self.disk.replace(&path, bytes).unwrap();
    }

    fn oldest_table(&self) -> String {
        let mut names = self.faults.list(STORE_DIR.as_ref()).unwrap();
        names.retain(|name| name.ends_with(".sst"));
        names.into_iter().min().unwrap()
    }

    fn fail_reads_with(&self, errno: i32, times: Times, after: usize) {
        let oldest = self.oldest_table();
        let reads = Fault::new(errno, times).calls(&[Call::ReadAt]).suffix(oldest);
        self.faults.inject(reads.after(after));
    }

    pub(super) fn quarantined(&self) -> Vec<u64> {
        self.db.stats().quarantined.iter().map(|table| table.table_id).collect()
    }

    fn reports(&self) -> (Vec<u64>, bool) {
        self.reports.0.lock().unwrap().clone()
    }
}

#[test]
fn n7_temporary_read_error_quarantines_nothing() {
    let mut struck = 0;
    for after in 0..3 {
        let failing = Failing::new();
        // A failed read-ahead is repeated as a single read.
        failing.fail_reads(Times::Once, after);
        failing.fail_reads(Times::Once, after + 1);
        failing.write(3);
        struck += usize::from(failing.faults.failures() > 1);
        assert_eq!(failing.reports(), (vec![], false), "read {after}");
        let stats = failing.db.stats();
        assert_eq!((stats.levels[0].runs, stats.read_only), (0, None), "read {after}: compacted");
    }
    assert!(struck > 0, "no compaction had to be tried again");
}

#[test]
fn n7_readable_table_leaves_the_quarantine() {
    for lifts in ["compact", "verify", "verify beside a damaged filter", "time"] {
        let failing = Failing::new();
        failing.fail_reads(Times::ForGood, 0);
        failing.write(3);
        let quarantined = failing.quarantined();
        assert_eq!((quarantined.len(), failing.reports().1), (1, false), "{lifts}");
        assert_eq!(failing.reports().0, quarantined, "{lifts}");
        let error = failing.db.compact().unwrap_err();
        assert!(matches!(&error, Error::Io { op: "read", .. }), "{lifts}: {error:?}");
        failing.faults.heal();
        match lifts {
            "compact" => failing.db.compact().unwrap(),
            "verify" => {
                let report = failing.db.verify().unwrap();
                assert!(report.is_good() && report.quarantined.is_empty(), "{report}");
                assert_eq!(failing.quarantined(), [0; 0]);
            }
            "verify beside a damaged filter" => {
                failing.damage_filter();
                let report = failing.db.verify().unwrap();
                let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
                assert_eq!(kinds, [VerifyProblemKind::FilterUnusable], "{report}");
                assert_eq!(failing.quarantined(), [0; 0]);
            }
            _ => failing.clock.advance(Duration::from_hours(2)),
        }
        (4..8).for_each(|run| failing.write(run));
        assert_eq!(failing.quarantined(), [0; 0], "{lifts}");
        let key = 7_u32;
        let found = failing.db.get(key.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(key, 7)[..]), "{lifts}");
        let stats = failing.db.stats();
        assert!(stats.levels[0].runs < 4, "{lifts}: {stats}");
    }
}

#[test]
fn n7_compaction_is_delayed_while_memory_is_short() {
    for errno in [ENOMEM, EAGAIN, EINTR] {
        let failing = Failing::new();
        failing.fail_reads_with(errno, Times::ForGood, 0);
        failing.write(3);
        assert!(failing.faults.failures() > 0);
        let stats = failing.db.stats();
        assert_eq!((failing.reports(), stats.read_only), ((vec![], false), None), "{errno}");
        assert_eq!((stats.quarantined.len(), stats.levels[0].runs), (0, 4), "{errno}");
        assert!(matches!(failing.db.compact(), Err(Error::Io { op: "read", .. })), "{errno}");
        failing.write(4);
        failing.faults.heal();
        failing.db.wait_for_background().unwrap();
        let stats = failing.db.stats();
        assert_eq!((stats.read_only, stats.levels[0].runs), (None, 0), "{errno}");
    }
}

#[test]
fn n7_flush_is_delayed_while_memory_is_short() {
    let failing = Failing::new();
    let reads = Fault::new(ENOMEM, Times::ForGood).calls(&[Call::ReadAt]).suffix(".sst");
    failing.faults.inject(reads);
    failing.db.insert("key", "value").unwrap();
    assert!(matches!(failing.db.flush(), Err(Error::Io { op: "read", .. })));
    failing.faults.heal();
    failing.db.insert("key", "next").unwrap();
    failing.db.flush().unwrap();
    let stats = failing.db.stats();
    assert_eq!((failing.reports().1, stats.read_only), (false, None));
    assert_eq!(failing.db.get("key").unwrap().as_deref(), Some(&b"next"[..]));
}

#[test]
fn n7_flushed_table_that_cannot_be_opened_is_unlinked() {
    let failing = Failing::new();
    let tables = || {
        let names = failing.faults.list(STORE_DIR.as_ref()).unwrap();
        names.iter().filter(|name| name.ends_with(".sst")).count()
    };
    let before = tables();
    let reads = Fault::new(ENOMEM, Times::ForGood).calls(&[Call::ReadAt]).suffix(".sst");
    failing.faults.inject(reads);
    failing.db.insert("key", "value").unwrap();
    for _ in 0..5 {
        assert!(matches!(failing.db.flush(), Err(Error::Io { op: "read", .. })));
    }
    failing.faults.heal();
    assert!(tables() <= before + 1, "{} tables of {before}", tables());
}
