//! Files that cannot be linked are copied.

use std::{io, path::Path, sync::Arc};

use sievedb::{Error, fs::Fs};
use sievedb_doubles::MemoryFs;
use sievedb_tests::{
    layer::{Layer, Layered},
    model::{DEFAULT, Model},
    recorder::Recorder,
    settings::{STORE_DIR, small_options},
};

/// Errors of links for which a file is copied: EPERM, EXDEV, EMLINK, EOPNOTSUPP.
const COPIED: [i32; 4] = [1, 18, 31, 95];

/// A disk on which links fail with an error of the operating system.
#[derive(Debug)]
struct NoLinks {
    disk: Arc<MemoryFs>,
    errno: i32,
}

impl Layer for NoLinks {
    fn inner(&self) -> &dyn Fs {
        &*self.disk
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(self.errno))
    }
}

#[test]
fn files_that_cannot_be_linked_are_copied() {
    for errno in COPIED {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(Layered(NoLinks { disk: Arc::clone(&disk), errno }));
        let mut recorder = Recorder::new(disk, small_options(fs), Model::default());
        for number in 0..60 {
            recorder.insert(DEFAULT, format!("{number}"), 400);
        }
        recorder.flush();
        recorder.insert(DEFAULT, "logged", 5000);
        recorder.insert(DEFAULT, "logged too", 5000);
        assert!(recorder.checkpoint("data/copy"));
        let report = recorder.db().checkpoint("data/again").unwrap();
        assert_eq!(report.files_linked, 0, "error {errno}");
        assert!(report.files_copied > 2 && report.bytes_copied > 20_000, "{report:?}");
    }
}

#[test]
fn other_errors_of_links_fail_the_checkpoint() {
    for errno in [5, 28] {
        let disk = Arc::new(MemoryFs::new());
        let fs = Arc::new(Layered(NoLinks { disk: Arc::clone(&disk), errno }));
        let db = small_options(fs).open(STORE_DIR).unwrap();
        db.insert("key", "value").unwrap();
        db.flush().unwrap();
        let failed = db.checkpoint("data/copy");
        assert!(matches!(failed, Err(Error::Io { op: "link", .. })), "{failed:?}");
        assert_eq!(disk.list(Path::new("data/copy")).unwrap(), [""; 0]);
        db.insert("key", "value").unwrap();
    }
}
