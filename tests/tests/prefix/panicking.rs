//! A panicking prefix function.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use sievedb::{Db, Error, KeyspaceOptions, Options, PrefixExtractor, PrefixFunction};
use sievedb_doubles::MemoryFs;

use super::STORE_DIR;

/// Extracts the first four bytes, or panics.
#[derive(Debug, Default)]
struct Panics(AtomicBool);

impl PrefixFunction for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn prefix_length(&self, _: &[u8]) -> Option<usize> {
        assert!(!self.0.load(Relaxed), "the panic that the test expects");
        Some(4)
    }

    fn determines_prefix(&self, start: &[u8]) -> bool {
        assert!(!self.0.load(Relaxed), "the panic that the test expects");
        start.len() >= 4
    }
}

/// No thread waits forever for work ended by a panic, on a thread of the store or of the caller.
#[test]
fn panicking_flush_makes_the_store_read_only() {
    for worker_threads in [0, 1] {
        let (fs, function) = (Arc::new(MemoryFs::new()), Arc::new(Panics::default()));
        let keyspace = KeyspaceOptions::new()
            .prefix_extractor(PrefixExtractor::Custom(Arc::clone(&function) as _));
        let open = || -> Db {
            Options::new()
                .fs(Arc::clone(&fs) as _)
                .worker_threads(worker_threads)
                .prefix_function(Arc::clone(&function) as _)
                .keyspace(keyspace.clone())
                .open(STORE_DIR)
                .unwrap()
        };
        let db = open();
        db.insert("key 1", "1").unwrap();
        function.0.store(true, Relaxed);
        let flushed = catch_unwind(AssertUnwindSafe(|| db.flush()));
        assert_eq!(flushed.is_err(), worker_threads == 0, "the caller's thread panics");
        for (call, outcome) in [
            ("flush", db.flush()),
            ("compact", db.compact()),
            ("wait_for_background", db.wait_for_background()),
            ("insert", db.insert("key 2", "2")),
        ] {
            let is_told = matches!(&outcome, Err(Error::ReadOnly { cause }) if matches!(**cause, Error::WorkerPanicked));
            assert!(is_told, "{worker_threads} workers, {call}: {outcome:?}");
        }
        assert_eq!(db.get("key 1").unwrap().as_deref(), Some(&b"1"[..]));
        function.0.store(false, Relaxed);
        drop(db);
        let db = open();
        assert_eq!(db.prefix("key ").map(|entry| entry.unwrap().0).collect::<Vec<_>>(), ["key 1"]);
        db.flush().unwrap();
    }
}
