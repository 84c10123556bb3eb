//! Transactions while appends to the log fail on a full disk, in the middle of other commits.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use sievedb::{
    Durability, Isolation, Options,
    fs::{AppendFile, Fs},
};
use sievedb_tests::{
    isolation::anomaly,
    layer::{Layer, Layered},
    rng::mix,
    settings::{from_env, report, seed, small_keyspace},
};

use super::{
    engine::{Kind, Opened, phases},
    transactions::{Running, Transactions, check},
};

/// One append to the log of so many fails.
const ONE_IN: u64 = 8;

/// When appends fail.
#[derive(Debug, Default)]
struct Faults {
    is_on: AtomicBool,
    appends: AtomicU64,
    failed: AtomicU64,
}

impl Faults {
    fn is_due(&self) -> bool {
        let append = self.appends.fetch_add(1, SeqCst);
        let is_due = self.is_on.load(SeqCst) && mix(append).is_multiple_of(ONE_IN);
        self.failed.fetch_add(u64::from(is_due), SeqCst);
        is_due
    }
}

#[derive(Debug)]
struct FullDisk {
    inner: Arc<dyn Fs>,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct LogFile {
    inner: Arc<dyn AppendFile>,
    faults: Arc<Faults>,
}

impl AppendFile for LogFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        thread::yield_now();
        if !self.faults.is_due() {
            return self.inner.append(bytes);
        }
        self.inner.append(&bytes[..bytes.len() / 2])?;
        thread::yield_now();
        Err(io::ErrorKind::StorageFull.into())
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        thread::yield_now();
        self.inner.sync_data()
    }
}

impl Layer for FullDisk {
    fn inner(&self) -> &dyn Fs {
        &*self.inner
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.inner.create(path)?;
        if path.extension().is_none_or(|extension| extension != "log") {
            return Ok(inner);
        }
        Ok(Arc::new(LogFile { inner, faults: Arc::clone(&self.faults) }))
    }
}

/// Serializable transactions on a disk that is full at times.
#[derive(Debug)]
struct OnFullDisk {
    transactions: Transactions,
    faults: Arc<Faults>,
}

impl Kind for OnFullDisk {
    type Target<'s> = Running<'s>;

    /// No memtable is full, so that no flush waits for room on the disk.
    fn options(&self, options: Options) -> Options {
        options.keyspace(small_keyspace().memtable_bytes(4 << 20)).log_bytes_max(64 << 20)
    }

    fn fs(&self, disk: Arc<dyn Fs>) -> Arc<dyn Fs> {
        let faults = Arc::clone(&self.faults);
        Arc::new(Layered(FullDisk { inner: disk, faults }))
    }

    fn target<'s>(&self, store: &'s Opened) -> Running<'s> {
        self.faults.is_on.store(true, SeqCst);
        self.transactions.target(store)
    }

    /// A commit in a further log segment excludes all that failed from what a power cut leaves.
    fn end_phase(&self, store: &Opened) {
        self.faults.is_on.store(false, SeqCst);
        store.db.insert("end", "").expect("there is room");
        store.db.persist(Durability::Disk).expect("there is room");
    }
}

#[test]
fn commits_that_fail_are_not_seen() {
    let (seed, count) = (seed("isolation, full disk", 1), from_env("SIEVE_TRANSACTIONS", 3_000));
    let (transactions, faults) = (Transactions::new(Isolation::Serializable), Arc::default());
    let kind = OnFullDisk { transactions, faults };
    let phases = phases(&kind, (3, count / 3), seed);
    let (commits, _) = check(&phases, anomaly::Isolation::Serializable, |_| true);
    let failed = kind.faults.failed.load(SeqCst);
    report(&format!("isolation, full disk: {commits} commits, {failed} appends failed"));
    assert!(commits > count / 4 && failed > 10, "{commits} commits, {failed} appends failed");
}
