//! Calls that wait for a keyspace which another thread drops.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use sievedb::{Db, Error, Keyspace, KeyspaceOptions, MergeError, MergeOperator, Result};
use sievedb_doubles::MemoryFs;
use sievedb_tests::settings::{STORE_DIR, small_options};

/// Reports each call, which waits for a message.
#[derive(Debug)]
struct Waits {
    began: Sender<()>,
    go: Mutex<Receiver<()>>,
}

impl MergeOperator for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        self.began.send(()).map_err(|_| MergeError::new("the test has ended"))?;
        let go = self.go.lock().map_err(|_| MergeError::new("a call panicked"))?.recv();
        go.map(|()| Vec::new()).map_err(|_| MergeError::new("the test has ended"))
    }
}

/// Calls `call` for a keyspace that is dropped while an operator is called.
fn call_while_dropped(
    is_base_deeper: bool,
    call: impl Fn(&Db, &Keyspace) -> Result<()> + Sync,
) -> Result<()> {
    let (began, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let options = small_options(Arc::new(MemoryFs::new())).worker_threads(1);
    let db = options.open(STORE_DIR).expect("a new store");
    let waits =
        KeyspaceOptions::new().merge_operator(Arc::new(Waits { began, go: Mutex::new(goes) }));
    let keyspace = db.keyspace_with("dropped", &waits).expect("there is room");
    keyspace.insert("key", "base").expect("there is room");
    if is_base_deeper {
        keyspace.flush().expect("there is room");
    }
    keyspace.merge("key", "operand").expect("there is room");
    thread::scope(|scope| {
        let called = scope.spawn(|| call(&db, &keyspace));
        begins.recv().expect("it begins");
        assert!(db.drop_keyspace("dropped").expect("there is room"));
        go.send(()).expect("it waits");
        called.join().expect("no panic")
    })
}

#[test]
fn calls_of_a_keyspace_report_that_it_was_dropped_meanwhile() {
    let dropped = |result: Result<()>| match result {
        Err(Error::KeyspaceDropped { name }) => assert_eq!(name, "dropped"),
        other => panic!("{other:?}"),
    };
    dropped(call_while_dropped(false, |_, keyspace| keyspace.flush()));
    dropped(call_while_dropped(true, |_, keyspace| keyspace.compact()));
    dropped(call_while_dropped(true, |_, keyspace| keyspace.compact_range("a"..)));
    // What is left is flushed and compact.
    call_while_dropped(false, |db, _| db.flush()).expect("no error");
    call_while_dropped(true, |db, _| db.compact()).expect("no error");
}
