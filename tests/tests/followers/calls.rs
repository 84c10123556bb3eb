//! A follower at every call of the writer's file system: it shows what a kill of the writer at that
//! point would leave.

use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, OnceLock},
};

use sievedb::{Db, Durability, Options, Snapshot, fs::AppendFile, fs::Fs, planted::PlantedBug};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    check::guarded,
    enumerate::{on_two_threads, verdict},
    history::{CrashPoint, History},
    layer::{Layer, Layered},
    model::Model,
    observe::observe,
    recorder::Recorder,
    rng::mix,
    settings::{STORE_DIR, bounded_options, from_env, report, seed},
    workload::{WORKLOADS, Workload, workload},
};

/// Reads without a change are compared once in so many calls.
const COMPARE_EVERY: usize = 16;

/// Calls a function before each call that changes something, and in the middle of each append.
struct Watched {
    disk: Arc<MemoryFs>,
    look: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Watched {
    fn file(&self, file: Arc<dyn AppendFile>) -> Arc<dyn AppendFile> {
        Arc::new(WatchedFile { file, look: Arc::clone(&self.look) })
    }
}

impl Layer for Watched {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        (self.look)();
        self.disk.create(path).map(|file| self.file(file))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.disk.open_append(path).map(|file| self.file(file))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.look)();
        self.disk.link(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        (self.look)();
        self.disk.unlink(path)?;
        (self.look)();
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.look)();
        self.disk.sync_dir(path)
    }
}

struct WatchedFile {
    file: Arc<dyn AppendFile>,
    look: Arc<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile").finish_non_exhaustive()
    }
}

impl AppendFile for WatchedFile {
    /// Another process may see any part of an append.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let (first, second) = bytes.split_at(bytes.len() * 2 / 3);
        self.file.append(first)?;
        (self.look)();
        self.file.append(second)?;
        (self.look)();
        Ok(())
    }

    fn reserve(&self, file_bytes: u64) -> io::Result<()> {
        self.file.reserve(file_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        (self.look)();
        self.file.sync_data()
    }
}

/// A follower, and what it has shown.
struct Follower {
    disk: Arc<MemoryFs>,
    options: Options,
    db: Option<Db>,
    looks: usize,
    /// Operations of the disk, and the contents then.
    seen: Vec<(usize, Model)>,
    kept: Option<Kept>,
    failure: Option<String>,
}

/// A snapshot, and the entries of the default keyspace that it has shown.
struct Kept {
    snapshot: Snapshot,
    entries: Vec<(bytes::Bytes, bytes::Bytes)>,
}

fn entries(snapshot: &Snapshot) -> Result<Vec<(bytes::Bytes, bytes::Bytes)>, String> {
    snapshot.iter().collect::<Result<_, _>>().map_err(|error| format!("a snapshot: {error:?}"))
}

impl Follower {
    fn look(&mut self) {
        if self.failure.is_none() {
            self.failure = guarded(|| self.try_look()).err();
        }
    }

    fn try_look(&mut self) -> Result<(), String> {
        let at = self.disk.operations();
        let (db, is_changed) = match &self.db {
            Some(db) => (db, db.refresh().map_err(|error| format!("refresh at {at}: {error:?}"))?),
            None => {
                if !self.disk.exists(&Path::new(STORE_DIR).join("CURRENT")).unwrap() {
                    return Ok(());
                }
                match self.options.clone().open(STORE_DIR) {
                    Err(sievedb::Error::NoStore { .. }) => return Ok(()),
                    opened => {
                        let opened = opened.map_err(|error| format!("open at {at}: {error:?}"))?;
                        (&*self.db.insert(opened), true)
                    }
                }
            }
        };
        self.looks += 1;
        if self.disk.operations() != at {
            return Err(format!("the follower has written at {at}"));
        }
        if !is_changed && !self.looks.is_multiple_of(COMPARE_EVERY) {
            return Ok(());
        }
        let found = observe(db, &std::collections::BTreeMap::new());
        let found = found.map_err(|error| format!("at {at}: {error}"))?;
        self.seen.push((at, found));
        if self.looks.is_multiple_of(5) {
            let kept = self.kept.take();
            if let Some(Kept { snapshot, entries: before }) = kept
                && entries(&snapshot)? != before
            {
                return Err(format!("at {at}: a snapshot has changed"));
            }
            let snapshot = db.snapshot();
            self.kept = Some(Kept { entries: entries(&snapshot)?, snapshot });
        }
        Ok(())
    }

    fn check(&self, history: &History) -> Result<usize, String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        for (at, found) in &self.seen {
            let point = CrashPoint { at: *at, survives: Durability::OsBuffer };
            history.check(found, point).map_err(|text| format!("at operation {at}: {text}"))?;
        }
        Ok(self.seen.len())
    }
}

/// Follows the writer of `workload`, which has the options that `change` makes of its own. Returns
/// the number of compared states.
pub(super) fn follow(
    workload: &Workload,
    planted: Option<PlantedBug>,
    seed: u64,
    change: impl Fn(Options) -> Options,
) -> Result<usize, String> {
    let disk = Arc::new(MemoryFs::new());
    let follower = Arc::<OnceLock<Mutex<Follower>>>::default();
    let looking = Arc::clone(&follower);
    let look = Arc::new(move || {
        if let Some(follower) = looking.get() {
            follower.lock().unwrap_or_else(std::sync::PoisonError::into_inner).look();
        }
    });
    let watched = Arc::new(Layered(Watched { disk: Arc::clone(&disk), look }));
    let options = change(bounded_options(watched, seed));
    let following = options.clone().fs(Arc::clone(&disk) as Arc<dyn Fs>);
    let following = following.follow(true).open_files_max(1000);
    let following = planted.map_or(following.clone(), |bug| following.planted_bug(bug));
    let (db, looks, seen, kept, failure) = (None, 0, Vec::new(), None, None);
    let new =
        Follower { disk: Arc::clone(&disk), options: following, db, looks, seen, kept, failure };
    let _ = follower.set(Mutex::new(new));
    let history = guarded(|| {
        let mut recorder = Recorder::new(disk, options, Model::default());
        (workload.run)(&mut recorder);
        recorder.release_all();
        recorder.close();
        Ok(recorder.history().clone())
    })?;
    let follower = follower.get().expect("it was set");
    let follower = follower.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    follower.check(&history)
}

/// Values that expire do so by the clock of each process, which a jump sets apart.
fn is_followed(workload: &&Workload) -> bool {
    !workload.name.starts_with("expir")
}

/// `SIEVE_WORKLOAD` follows one workload.
#[test]
fn follower_shows_a_prefix_at_every_call_of_its_writer() {
    let (seed, only) = (seed("followed calls", 1), from_env("SIEVE_WORKLOAD", String::new()));
    let chosen = |it: &&Workload| only.is_empty() || it.name == only;
    let workloads: Vec<_> = WORKLOADS.iter().filter(is_followed).filter(chosen).collect();
    let results = on_two_threads(&workloads, |workload| {
        let followed = follow(workload, None, mix(seed), |options| options);
        followed.map_err(|text| format!("workload {}: {text}", workload.name))
    });
    let states = verdict("followed calls", "states", results);
    assert!(!only.is_empty() || states > 2_500, "only {states} states");
}

#[test]
fn planted_half_batch_is_caught() {
    let caught = follow(workload("batches"), Some(PlantedBug::ShowHalfBatch), 1, |options| options);
    let violation = caught.expect_err("the planted bug is caught");
    let first = violation.lines().next().unwrap_or_default();
    report(&format!("planted bug, half of a batch: {first}"));
}
