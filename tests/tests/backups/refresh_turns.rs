//! A refresh beside the end of the last fetch.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

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

use sievedb::fs::Fs;
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    settings::STORE_DIR,
};

use super::{
    entries, options,
    refresh::next_backup,
    replicas::{REPLICA, check_store, complete, open},
    set,
};

/// Blocks one sync of the directory of the replica: reports it, and waits.
#[derive(Debug)]
struct Blocking {
    disk: Arc<MemoryFs>,
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Layer for Blocking {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let next = self.next.lock().unwrap().take();
        if let Some((reached, passes)) = next.filter(|_| path.ends_with(REPLICA)) {
            reached.send(()).unwrap();
            passes.recv().unwrap();
        }
        self.disk.sync_dir(path)
    }
}

#[test]
fn a_refresh_waits_for_the_end_of_the_last_fetch() {
    let disk = Arc::new(MemoryFs::new());
    let db = options(&disk).open(STORE_DIR).unwrap();
    next_backup(&disk, &db, 0);
    let fs = Arc::new(Layered(Blocking { disk: Arc::clone(&disk), next: Mutex::default() }));
    let local = options(&disk).fs(Arc::clone(&fs) as Arc<dyn Fs>);
    let replica = open(&set(&disk), &local).unwrap();
    for _ in 1..replica.stats().files_pending {
        assert!(replica.fetch_next().unwrap());
    }
    let wanted = next_backup(&disk, &db, 1);
    let ((reached, is_reached), (pass, passes)) = (channel(), channel());
    *fs.0.next.lock().unwrap() = Some((reached, passes));
    thread::scope(|scope| {
        scope.spawn(|| replica.fetch_next().unwrap());
        is_reached.recv().unwrap();
        scope.spawn(|| assert!(replica.refresh().unwrap()));
        // The refresh must not begin before the end of the fetch.
        for _ in 0..200 {
            if replica.stats().backup == Some(2) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        pass.send(()).unwrap();
    });
    assert_eq!(entries(replica.db()), wanted);
    complete(&replica);
    drop(replica);
    check_store(&options(&disk), &wanted);
}
