//! Functions of the examples, called by two threads.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    io,
    path::Path,
    sync::{Arc, Barrier},
    thread,
};

use sievedb::{
    Db, Options,
    fs::{AppendFile, Fs},
};
use sievedb_doubles::MemoryFs;
use sievedb_tests::layer::{Layer, Layered};

#[path = "../../../engine/examples/keyspaces.rs"]
mod keyspaces;
#[path = "../../../engine/examples/snapshot.rs"]
mod snapshot;

use self::{
    keyspaces::Users,
    snapshot::{ACCOUNTS, BALANCE, Bank, sum},
};

/// Yields to other threads in each append: between the reads of a commit and its end.
#[derive(Debug, Default)]
struct Yielding(MemoryFs);

#[derive(Debug)]
struct YieldingFile(Arc<dyn AppendFile>);

impl Layer for Yielding {
    fn inner(&self) -> &dyn Fs {
        &self.0
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(YieldingFile(self.0.create(path)?)))
    }
}

impl AppendFile for YieldingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        for _ in 0..20 {
            thread::yield_now();
        }
        self.0.append(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn open() -> Db {
    let fs = Arc::new(Layered(Yielding::default()));
    Options::new().fs(fs).worker_threads(0).open("db").unwrap()
}

/// Calls `work` in two threads that start together, with the number of the thread.
fn in_two_threads(work: impl Fn(u64) + Sync) {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for number in 0..2 {
            let (work, start) = (&work, &start);
            scope.spawn(move || {
                start.wait();
                work(number);
            });
        }
    });
}

#[test]
fn n10_concurrent_renames_leave_one_name() {
    let users = Users::open(open()).unwrap();
    in_two_threads(|thread| {
        for number in 0..500 {
            assert!(users.rename("7", &format!("{thread} {number}")).unwrap());
        }
    });
    let name = users.by_id.get("7").unwrap().unwrap();
    let names: Vec<_> = users.by_name.iter().keys().map(Result::unwrap).collect();
    assert_eq!(names, [name]);
}

#[test]
fn n10_one_of_two_threads_gets_a_name() {
    let users = Users::open(open()).unwrap();
    in_two_threads(|thread| {
        for number in 0..500 {
            users.rename(&thread.to_string(), &number.to_string()).unwrap();
        }
    });
    for entry in users.by_id.iter() {
        let (id, name) = entry.unwrap();
        assert_eq!(users.by_name.get(name).unwrap(), Some(id));
    }
    assert_eq!(users.by_name.iter().count(), users.by_id.iter().count());
}

#[test]
fn n10_concurrent_transfers_keep_the_sum() {
    let bank = Bank::open(open()).unwrap();
    in_two_threads(|thread| {
        for number in 0..5_000 {
            let (from, to) = ((number + thread) % ACCOUNTS, (number * 7 + 1) % ACCOUNTS);
            bank.transfer(from, to).unwrap();
        }
    });
    assert_eq!(sum(&bank.db.snapshot()).unwrap(), ACCOUNTS * BALANCE);
}
