//! Power cuts: all that the watermark or a resolved commit vouched for survives.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use sievedb::{
    CommitFuture, Db, Durability, Options,
    fs::{AppendFile, Fs},
    planted::PlantedBug,
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::{
    check::guarded,
    layer::{Layer, Layered},
    rng::Rng,
    settings::{STORE_DIR, report, seed, small_options},
};

use super::executor::poll_once;

/// A promise: all writes up to `sequence` are durable once the disk has done `operations`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vouched {
    pub(super) operations: usize,
    pub(super) sequence: u64,
}

/// A disk that reads the watermark of its store before and after each call on a file.
type Watching = Layered<Watch>;

#[derive(Debug)]
struct Watch {
    disk: Arc<MemoryFs>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    db: Mutex<Option<Db>>,
    vouched: Mutex<Vec<Vouched>>,
    disk: OnceLock<Arc<MemoryFs>>,
}

impl Shared {
    fn read_watermark(&self) {
        let db = self.db.lock().unwrap();
        if let Some(db) = &*db {
            let sequence = db.durable_sequence();
            self.vouch(sequence);
        }
    }

    /// Notes what is vouched for now.
    fn vouch(&self, sequence: u64) {
        let operations = self.disk.get().unwrap().operations();
        self.vouched.lock().unwrap().push(Vouched { operations, sequence });
    }
}

impl Layer for Watch {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let (inner, shared) = (self.disk.create(path)?, Arc::clone(&self.shared));
        Ok(Arc::new(WatchingFile { inner, shared }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let (inner, shared) = (self.disk.open_append(path)?, Arc::clone(&self.shared));
        Ok(Arc::new(WatchingFile { inner, shared }))
    }
}

#[derive(Debug)]
struct WatchingFile {
    inner: Arc<dyn AppendFile>,
    shared: Arc<Shared>,
}

impl AppendFile for WatchingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.shared.read_watermark();
        let appended = self.inner.append(bytes);
        self.shared.read_watermark();
        appended
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.inner.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.read_watermark();
        let synced = self.inner.sync_data();
        self.shared.read_watermark();
        synced
    }
}

/// The key of a write. Each write has one of its own, so the survivors show the history.
pub(super) fn key(sequence: u64) -> String {
    format!("{sequence:06}")
}

/// Checks a power cut after `at` operations: the survivors are a prefix of `written`, ascending
/// sequence numbers with a key each, and contain what was vouched for.
pub(super) fn check(
    disk: &MemoryFs,
    at: usize,
    loss: &Loss,
    written: &[u64],
    vouched: &[Vouched],
) -> Result<(), String> {
    guarded(|| {
        let left = Arc::new(disk.crash(at, loss));
        let promised = vouched.iter().filter(|it| it.operations <= at);
        let promised = promised.map(|it| it.sequence).max().unwrap_or(0);
        let db = small_options(left).open(STORE_DIR).map_err(|error| error.to_string())?;
        let survived = written.iter().filter(|&&it| db.contains_key(key(it)).unwrap());
        let survived = survived.count();
        let prefix = written.iter().take_while(|&&it| db.contains_key(key(it)).unwrap()).count();
        let durable = written.iter().take_while(|&&sequence| sequence <= promised).count();
        match () {
            () if survived != prefix => Err(format!("{survived} survived, {prefix} as a prefix")),
            () if prefix < durable => {
                Err(format!("{durable} writes were durable up to {promised}, {prefix} survived"))
            }
            () => Ok(()),
        }
    })
}

/// A history of asynchronous and other commits in a store without threads.
struct Story {
    disk: Arc<MemoryFs>,
    fs: Arc<Watching>,
    bug: Option<PlantedBug>,
    written: Vec<u64>,
    in_flight: Vec<CommitFuture>,
}

impl Story {
    fn new(seed: u64, bug: Option<PlantedBug>) -> Self {
        let disk = Arc::new(MemoryFs::with_seed(seed));
        let shared = Arc::<Shared>::default();
        shared.disk.set(Arc::clone(&disk)).unwrap();
        let fs = Arc::new(Layered(Watch { disk: Arc::clone(&disk), shared }));
        Self { disk, fs, bug, written: Vec::new(), in_flight: Vec::new() }
    }

    fn options(&self) -> Options {
        let options = small_options(Arc::clone(&self.fs) as Arc<dyn Fs>);
        self.bug.into_iter().fold(options, Options::planted_bug)
    }

    /// Tells with `random` calls.
    fn run(&mut self, random: &mut Rng) {
        for _ in 0..3 {
            let db = self.options().open(STORE_DIR).unwrap();
            *self.fs.0.shared.db.lock().unwrap() = Some(db.clone());
            for _ in 0..30 {
                self.call(&db, random);
            }
            self.fs.0.shared.db.lock().unwrap().take();
            db.close().unwrap();
            for commit in self.in_flight.split_off(0) {
                let sequence = commit.wait().unwrap();
                self.fs.0.shared.vouch(sequence);
            }
        }
    }

    fn call(&mut self, db: &Db, random: &mut Rng) {
        let shared = Arc::clone(&self.fs.0.shared);
        let next = db.snapshot().sequence() + 1;
        let durability = *random.pick(&[Durability::Memory, Durability::OsBuffer]);
        match random.below(10) {
            0 => db.flush().unwrap(),
            1 => db.persist(Durability::Disk).unwrap(),
            2 if next > 1 => {
                let sequence = next - 1 - random.below(3.min(next as usize)) as u64;
                db.wait_durable(sequence).unwrap();
                shared.vouch(sequence);
            }
            3 if !self.in_flight.is_empty() => {
                let at = random.below(self.in_flight.len());
                let mut commit = self.in_flight.swap_remove(at);
                assert!(poll_once(&mut commit).is_ready(), "a poll syncs");
                shared.vouch(commit.sequence());
            }
            word @ 4..=6 => {
                let mut batch = db.batch();
                batch.insert(db, key(next), [b'x'; 200]).unwrap();
                let durability = if word == 4 { durability } else { Durability::Disk };
                let commit = batch.commit_async(durability).unwrap();
                assert_eq!(commit.sequence(), next);
                if durability == Durability::Disk {
                    self.in_flight.push(commit);
                } else {
                    commit.wait().unwrap();
                }
                self.written.push(next);
            }
            _ => {
                let mut batch = db.batch();
                batch.insert(db, key(next), [b'x'; 200]).unwrap();
                batch.commit(durability).unwrap();
                self.written.push(next);
            }
        }
        shared.read_watermark();
    }
}

/// Cuts the power after every operation of a few histories. Returns the number of states.
///
/// # Errors
///
/// The first violation.
pub(crate) fn cut_everywhere(seed: u64, bug: Option<PlantedBug>) -> Result<usize, String> {
    let mut states = 0;
    for round in 0..4 {
        let mut random = Rng::new(seed ^ round);
        let mut story = Story::new(random.number(), bug);
        story.run(&mut random);
        let vouched = story.fs.0.shared.vouched.lock().unwrap().clone();
        assert!(vouched.is_sorted_by_key(|it| it.operations));
        for at in 0..=story.disk.operations() {
            let (seed, torn) = (random.number(), at % 2 == 0);
            for loss in [Loss::Everything, Loss::Random { seed, torn }] {
                check(&story.disk, at, &loss, &story.written, &vouched)
                    .map_err(|text| format!("{text}\n{}", story.disk.trace(at, &loss)))?;
                states += 1;
            }
        }
    }
    Ok(states)
}

#[test]
fn what_the_watermark_vouches_for_survives_power_cuts() {
    let seed = seed("durable watermark", 1);
    let states = cut_everywhere(seed, None).unwrap_or_else(|text| panic!("{text}"));
    assert!(states > 500, "{states}");
    report(&format!("durable watermark: {states} power cuts"));
}
