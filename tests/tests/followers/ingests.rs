//! Followers beside an ingest.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use sievedb::{
    Options,
    fs::{AppendFile, Fs},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::STORE_DIR,
};

/// Channels of the next edit of a manifest: it has begun, and it may go on.
type NextEdit = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

/// Reports the next edit of a manifest, which continues after a reply or 300 ms.
#[derive(Debug)]
struct Slow {
    disk: Arc<MemoryFs>,
    next: NextEdit,
}

impl Layer for Slow {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let file = self.disk.create(path)?;
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.starts_with("MANIFEST-")) {
            return Ok(file);
        }
        Ok(Arc::new(SlowFile { file, next: Arc::clone(&self.next) }))
    }
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn AppendFile>,
    next: NextEdit,
}

impl AppendFile for SlowFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if let Some((begun, ready)) = self.next.lock().unwrap().take() {
            begun.send(()).unwrap();
            let _ = ready.recv_timeout(Duration::from_millis(300));
        }
        self.file.append(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The log has the ingest, and the manifest gets its tables later.
#[test]
fn a_follower_shows_no_state_without_the_tables_of_an_ingest() {
    for reopens in [false, true] {
        let disk = Arc::new(MemoryFs::new());
        let next = Arc::default();
        let slow = Slow { disk: Arc::clone(&disk), next: Arc::clone(&next) };
        let options = Options::new().worker_threads(0);
        let db = options.clone().fs(Arc::new(Layered(slow))).open(STORE_DIR).unwrap();
        db.insert("before", "value").unwrap();
        db.flush().unwrap();
        let following = options.fs(disk).follow(true);
        let mut follower = following.clone().open(STORE_DIR).unwrap();
        let (begun, has_begun) = channel();
        let (ready, is_ready) = channel();
        *next.lock().unwrap() = Some((begun, is_ready));
        let sequence = thread::scope(|scope| {
            let ingest = scope.spawn(|| db.ingest([("key", "value")]).unwrap().sequence);
            has_begun.recv().unwrap();
            if reopens {
                follower = following.clone().open(STORE_DIR).unwrap();
            } else {
                follower.refresh().unwrap();
            }
            let _ = ready.send(());
            ingest.join().unwrap()
        });
        let snapshot = follower.snapshot();
        let found = snapshot.get("key").unwrap();
        let is_prefix = found.is_some() || snapshot.sequence() < sequence;
        assert!(is_prefix, "reopens: {reopens}, at {} of {sequence}", snapshot.sequence());
        follower.refresh().unwrap();
        assert!(follower.get("key").unwrap().is_some());
    }
}
