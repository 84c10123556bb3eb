//! Two threads unlink tables concurrently: the durable list of retired tables remains the newest
//! one.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use sievedb::{
    Db,
    fs::{AppendFile, Fs},
};
use sievedb_doubles::{Loss, MemoryFs};
use sievedb_tests::layer::{Layer, Layered};

use super::{
    repair::options,
    repaired_crash::check,
    sample::{STORE_DIR, files},
};

/// Longest wait of the first thread for the second one. With correct code the second thread waits
/// for the first instead, so this only delays the test.
const FIRST_WAIT_MAX: Duration = Duration::from_millis(500);
const SECOND_WAIT_MAX: Duration = Duration::from_secs(60);

/// A step that one thread runs once, at its next call.
#[derive(Default)]
struct Step(Mutex<Option<OwnStep>>);

type OwnStep = (ThreadId, Box<dyn FnOnce() + Send>);

impl Step {
    /// Sets the step of this thread.
    fn set(&self, step: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some((thread::current().id(), Box::new(step)));
    }

    /// Runs the step if `path` is a table and the step is of this thread.
    fn run(&self, path: &Path) {
        let is_own = |step: &mut OwnStep| step.0 == thread::current().id();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let step = self.0.lock().unwrap().take_if(is_own);
            step.into_iter().for_each(|(_, step)| step());
        }
    }
}

/// An in-memory disk that runs a step before a table is created, and one before it is unlinked.
struct Steps {
    disk: Arc<MemoryFs>,
    before_create: Step,
    before_unlink: Step,
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}

impl Layer for Steps {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.before_create.run(path);
        self.disk.create(path)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.before_unlink.run(path);
        self.disk.unlink(path)
    }
}

/// Writes a key twice and removes it, in three tables.
fn fill(db: &Db, name: &str) {
    let keyspace = db.keyspace(name).unwrap();
    for value in ["1", "2"] {
        keyspace.insert("a", value).unwrap();
        keyspace.flush().unwrap();
    }
    keyspace.remove("a").unwrap();
    keyspace.flush().unwrap();
}

fn wait(signal: &Receiver<()>, max: Duration) -> bool {
    signal.recv_timeout(max).is_ok()
}

/// The first thread lists its tables and stops before it writes the list. The second thread lists
/// more tables and stops before it unlinks one. The first thread must not replace that list.
#[test]
fn n15_concurrent_unlinks_keep_the_newer_list_of_retired_tables() {
    let disk = Arc::new(MemoryFs::with_seed(7));
    let steps = Steps {
        disk: disk.clone(),
        before_create: Step::default(),
        before_unlink: Step::default(),
    };
    let fs = Arc::new(Layered(steps));
    let open = || options(&disk).fs(fs.clone()).open(STORE_DIR).unwrap();
    let db = open();
    fill(&db, "first");
    fill(&db, "second");
    drop(db);
    // The log is deleted: only the tables have the keys.
    let db = open();
    // Its tables are unlinked when the reader is dropped.
    let reader = db.keyspace("first").unwrap().iter();
    db.keyspace("first").unwrap().compact().unwrap();
    let before = disk.operations();
    let (start_second, second_starts) = channel();
    let (second_unlinks, first_goes_on) = channel();
    let (first_ends, second_goes_on): (Sender<()>, _) = channel();
    thread::scope(|scope| {
        let (db, fs) = (&db, &fs);
        scope.spawn(move || {
            fs.0.before_create.set(move || {
                start_second.send(()).unwrap();
                wait(&first_goes_on, FIRST_WAIT_MAX);
            });
            drop(reader);
            db.flush().unwrap();
            drop(first_ends);
        });
        scope.spawn(move || {
            assert!(wait(&second_starts, SECOND_WAIT_MAX), "the first thread writes a list");
            fs.0.before_unlink.set(move || {
                let _ = second_unlinks.send(());
                wait(&second_goes_on, SECOND_WAIT_MAX);
            });
            db.keyspace("second").unwrap().compact().unwrap();
        });
    });
    for at in before..=disk.operations() {
        let alone = (0..disk.unsynced(at)).map(Loss::Alone);
        for loss in [Loss::Nothing, Loss::Everything].into_iter().chain(alone) {
            check(&files(&disk.crash(at, &loss)), &format!("cut at {at}, {loss:?}"));
        }
    }
    drop(db);
}
