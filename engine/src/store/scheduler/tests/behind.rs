//! Drops of keyspaces whose edit of the manifest found the disk full.

use super::*;
use crate::tests::ENOSPC;

/// Longer than any of these calls takes on a busy machine.
const LONG: Duration = Duration::from_secs(30);

struct Full {
    fs: Arc<FaultFs>,
    db: Db,
    /// Name of the present manifest.
    manifest: String,
    memtable_bytes_max: u64,
}

impl Full {
    fn new(workers: usize) -> Self {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(workers);
        let db = options.memory_budget(8 << 20).open("db").expect("a new store");
        let names = fs.list("db".as_ref()).expect("it exists");
        let manifest = names.into_iter().find(|name| name.starts_with("MANIFEST"));
        let manifest = manifest.expect("each store has one");
        let memtable_bytes_max = db.stats().memory.memtable_bytes_max;
        Self { fs, db, manifest, memtable_bytes_max }
    }

    /// Writes this part of the limit of memtables to a keyspace, in hundredths.
    fn fill(&self, keyspace: &Keyspace, part: u64) {
        let value = vec![7; 10_000];
        for key in 0..self.memtable_bytes_max * part / 100 / 10_000 {
            keyspace.insert(key.to_be_bytes(), &value).expect("there is room");
        }
    }

    fn drop_while_full(&self, name: &str) {
        let full = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        self.fs.inject(full.suffix(&self.manifest));
        assert!(self.db.drop_keyspace(name).expect("the log has it"));
        assert!(self.fs.failures() > 0, "the manifest lacks it");
    }
}

#[test]
fn memory_of_a_dropped_keyspace_is_free_after_a_full_disk() {
    for (workers, freezes) in [(0, false), (0, true), (1, false)] {
        let full = Full::new(workers);
        let large = full.db.keyspace("large").expect("there is room");
        full.fill(&large, 40);
        if freezes {
            let store = full.db.store();
            let tree = store.versions.trees().get("large").cloned().expect("it was created");
            let _placement = store.writer.placement();
            assert!(tree.freeze());
        }
        full.drop_while_full("large");
        // Memtables have room for it once those of the dropped keyspace are gone.
        let value = vec![7; (full.memtable_bytes_max * 60 / 100) as usize];
        let (sender, written) = mpsc::channel();
        let db = full.db.clone();
        let writer = thread::spawn(move || sender.send(db.insert("key", value)));
        let written = written.recv_timeout(LONG);
        let case = format!("{workers} workers, frozen: {freezes}");
        written.expect(&case).expect(&case);
        writer.join().expect("it has ended").expect("the receiver is alive");
        full.db.wait_for_background().expect(&case);
        assert_eq!(full.db.keyspaces().expect("it is open"), ["default"], "{case}");
    }
}

/// A caller that waits for background work knows that files of the keyspace are gone.
#[test]
fn files_of_a_dropped_keyspace_go_after_a_full_disk() {
    for workers in [0, 1] {
        let full = Full::new(workers);
        let large = full.db.keyspace("large").expect("there is room");
        full.fill(&large, 10);
        large.flush().expect("there is room");
        let tables = || {
            let names = full.fs.list("db".as_ref()).expect("it exists");
            names.into_iter().filter(|name| name.ends_with(".sst")).count()
        };
        assert_eq!(tables(), 1);
        let forever = Fault::new(ENOSPC, Times::ForGood).calls(&[Call::Create]);
        full.fs.inject(forever);
        full.drop_while_full("large");
        let error = full.db.wait_for_background().expect_err("the disk is full");
        assert!(error.is_no_space(), "{error}");
        assert_eq!(tables(), 1, "{workers} workers");
        full.fs.heal();
        full.db.wait_for_background().expect("there is room");
        assert_eq!(tables(), 0, "{workers} workers");
    }
}
