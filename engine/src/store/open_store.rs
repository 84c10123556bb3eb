//! A store from its opening to its clean close.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use crate::{
    Error, Options, Result,
    commit::{Placement, PublishQueue, SharedLog},
    file_name::FileName,
    fs::{FileLock, Fs},
    read::snapshot_list::SnapshotList,
    store::Store,
    store::background::Background,
    store::recovery::{self, Beginning},
    sync::{
        Mutex, RwLock,
        atomic::AtomicU64,
        thread::{self, JoinHandle},
    },
};

/// What every handle holds: the store, its workers and its lock. The last one to go closes it.
#[derive(Debug)]
pub(crate) struct OpenStore {
    store: Arc<Store>,
    workers: Vec<JoinHandle<()>>,
    /// Released last.
    _lock: Box<dyn FileLock>,
}

impl OpenStore {
    /// Opens the store in `folder`, or creates it.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub(crate) fn open(folder: &Path, options: Options) -> Result<Self> {
        create_folder(&*options.fs, folder)?;
        let lock_path = FileName::Lock.path(folder);
        let lock = options.fs.lock(&lock_path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: folder.to_owned() },
            _ => Error::io("lock", lock_path, error),
        })?;
        let recovered = recovery::read(&options, folder)?;
        let early = options.has_bug(crate::planted::PlantedBug::DeleteOrphansEarly);
        let beginning = recovery::take_over(&options, folder, recovered, early)?;
        let store = Arc::new(new_store(options, beginning));
        let workers = (0..store.options.worker_threads).map(|number| start_worker(&store, number));
        let workers = workers.collect::<Result<_>>()?;
        Ok(Self { store, workers, _lock: lock })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.store.background.shut_down();
        for worker in self.workers.drain(..) {
            // A worker that drops the last handle, in a listener, cannot wait for itself. A worker
            // that panicked has said so already.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join();
            }
        }
        if self.store.check_writable().is_ok() {
            // Nobody is there to be told of an error, and nothing more was promised than the
            // writes got when they were acknowledged.
            let _ = self.store.log.close(&*self.store);
            self.store.unlink_obsolete();
        }
    }
}

fn new_store(options: Options, beginning: Beginning) -> Store {
    let Beginning { manifest, tables, trees, last_sequence } = beginning;
    let next_keyspace_id = manifest.state().next_keyspace_id;
    Store {
        options,
        hash_seed: tables.hash_seed,
        placement: Mutex::new(Placement::new(last_sequence)),
        publish: PublishQueue::new(last_sequence),
        log: SharedLog::new(last_sequence),
        manifest: Mutex::new(manifest),
        trees: RwLock::new(trees),
        keyspace_change: Mutex::new(()),
        unrecorded: Mutex::default(),
        next_keyspace_id: AtomicU64::new(next_keyspace_id),
        snapshots: SnapshotList::default(),
        tables,
        background: Background::default(),
        read_only: OnceLock::new(),
    }
}

fn start_worker(store: &Arc<Store>, number: usize) -> Result<JoinHandle<()>> {
    let shared = Arc::clone(store);
    let thread = thread::Builder::new().name(format!("sievedb-worker-{number}"));
    let started = thread.spawn(move || Background::work(&shared));
    started.map_err(|error| Error::io("start a worker for", &store.tables.folder, error))
}

/// Creates `folder` and its missing parents, and makes their entries durable.
fn create_folder(fs: &dyn Fs, folder: &Path) -> Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for ancestor in folder.ancestors() {
        let exists = ancestor.as_os_str().is_empty()
            || fs.exists(ancestor).map_err(|error| Error::io("look for", ancestor, error))?;
        if exists {
            break;
        }
        missing.push(ancestor.to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    fs.create_folder(folder).map_err(|error| Error::io("create", folder, error))?;
    for path in missing.iter().rev() {
        let parent = path.parent().unwrap_or(Path::new(""));
        fs.sync_folder(parent).map_err(|error| Error::io("sync", parent, error))?;
    }
    Ok(())
}
