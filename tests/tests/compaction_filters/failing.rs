//! A filter that panics harms nothing: values stay, and compactions run without it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use sievedb::{CompactionContext, CompactionFilter, Decision, Error, Event, EventListener};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_keyspace};

use super::{all, options};

/// Removes all keys, and panics at `k5` unless it is mild.
#[derive(Debug, Default)]
struct Panics {
    is_mild: AtomicBool,
}

impl CompactionFilter for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn filter(&self, _: &CompactionContext<'_>, key: &[u8], _: &[u8]) -> Decision {
        assert!(self.is_mild.load(SeqCst) || key != b"k5", "a filter panics, as it should");
        Decision::Remove
    }
}

#[derive(Debug, Default)]
struct Failures(Mutex<Vec<Error>>);

impl EventListener for Failures {
    fn on_event(&self, event: &Event) {
        if let Event::CompactionFilterFailed { error, .. } = event {
            self.0.lock().unwrap().push(error.clone());
        }
    }
}

#[test]
fn a_panic_fails_the_compaction_and_changes_nothing() {
    for worker_threads in [0, 2] {
        let fs = Arc::new(MemoryFs::new());
        let (filter, failures) = (Arc::<Panics>::default(), Arc::<Failures>::default());
        let keyspace = small_keyspace().compaction_filter(filter.clone());
        let options = || {
            let options = options(&fs).keyspace(keyspace.clone()).listener(failures.clone());
            options.worker_threads(worker_threads)
        };
        let db = options().open(STORE_DIR).unwrap();
        for number in 0..10 {
            db.insert(format!("k{number}"), "value").unwrap();
        }
        let before = all(db.iter());
        match db.compact() {
            Err(Error::CompactionFilterFailed { keyspace, filter, key, .. }) => {
                assert_eq!((&*keyspace, &*filter, &*key), ("default", "panics", &b"k5"[..]));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(all(db.iter()), before);
        db.insert("k99", "value").unwrap();
        db.compact().unwrap();
        assert_eq!(db.len().unwrap(), 11, "compactions run without the filter");
        assert_eq!(failures.0.lock().unwrap().len(), 1, "reported once");
        assert!(db.verify().unwrap().is_good());

        filter.is_mild.store(true, SeqCst);
        if worker_threads == 0 {
            let default = db.default_keyspace();
            default.set_options(default.options()).unwrap();
            db.compact().unwrap();
        } else {
            drop(db);
            let db = options().open(STORE_DIR).unwrap();
            db.compact().unwrap();
            assert!(db.is_empty().unwrap());
            continue;
        }
        assert!(db.is_empty().unwrap());
    }
}
