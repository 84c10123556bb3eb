//! Large writes beside smaller ones.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::JoinHandle,
};

use super::{
    priorities::{Busy, busy, claim, options, tree_of},
    *,
};
use crate::StallReason;

/// Longer than any of these calls takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A write on a thread of its own.
pub(super) struct Writing {
    thread: JoinHandle<()>,
    written: mpsc::Receiver<crate::Result<()>>,
}

impl Writing {
    pub(super) fn begin(keyspace: &Keyspace, value_bytes: u64) -> Self {
        let (sender, written) = mpsc::channel();
        let (keyspace, value) = (keyspace.clone(), vec![7; value_bytes as usize]);
        let thread = thread::spawn(move || {
            sender.send(keyspace.insert("key", value)).expect("the test waits");
        });
        Self { thread, written }
    }

    pub(super) fn waits(&self) -> bool {
        self.written.recv_timeout(Duration::from_millis(200)).is_err()
    }

    pub(super) fn end(self) -> crate::Result<()> {
        let result = self.written.recv_timeout(LONG).expect("it ends");
        self.thread.join().expect("it has ended");
        result
    }
}

/// A store with a write that waits for room, and a smaller one that has room.
fn with_waiting() -> (Busy, Writing, Writing) {
    let busy = busy(options(1).memory_budget(8 << 20));
    let (db, store) = (&busy.db, busy.db.store());
    let limit = db.stats().memory.memtable_bytes_max;
    db.insert("key", vec![7; limit as usize / 4]).expect("there is room");
    let large = Writing::begin(db.default_keyspace(), limit * 7 / 10);
    while !store.writer.room_turns().is_held() {
        thread::yield_now();
    }
    let refused = db.try_insert("key", "value");
    let is_full = |error: &Error| {
        matches!(error, Error::WouldStall { reason: StallReason::MemtableMemory, .. })
    };
    assert!(matches!(&refused, Err(error) if is_full(error)), "{refused:?}");
    assert!(store.poll_room(1, &[tree_of(db, "default")]).is_none());
    let small = Writing::begin(db.default_keyspace(), 10);
    assert!(small.waits() && large.waits(), "no memtable is flushed");
    (busy, large, small)
}

/// Otherwise each flush would make room for small ones only.
#[test]
fn writes_wait_until_a_large_one_is_placed() {
    let (busy, large, small) = with_waiting();
    let db = &busy.db;
    while !large.thread.is_finished() {
        if let Some(job) = claim(db) {
            assert!(db.store().carry_out(&job), "there is room");
        }
    }
    large.end().expect("there is room");
    small.end().expect("there is room");
    assert!(!db.store().writer.room_turns().is_held());
    db.try_insert("key", "value").expect("there is room");
}

#[test]
fn a_large_write_that_fails_ends_its_turn() {
    let (busy, large, small) = with_waiting();
    let store = busy.db.store();
    let full = Error::io("append", "1.sst", io::Error::from_raw_os_error(28));
    let now = store.options.clock.now();
    store.scheduler.state.lock().full_disk.note_stop(true, &full, now, true);
    store.scheduler.wake();
    assert!(large.end().expect_err("the disk is full").is_no_space());
    small.end().expect("there is room for it");
}

/// A write may end its turn without a flush, for example by an error.
#[test]
fn waits_for_room_end_with_a_turn() {
    let busy = busy(options(1));
    let store = busy.db.store();
    let mut turn = store.writer.room_turns().begin();
    assert!(turn.is_some());
    let (sender, has_room) = mpsc::channel();
    let room = busy.db.room();
    let task = thread::spawn(move || sender.send(room.wait()).expect("the test waits"));
    assert!(has_room.recv_timeout(Duration::from_millis(200)).is_err(), "a write has the turn");
    store.end_turn(&mut turn);
    has_room.recv_timeout(LONG).expect("the end is reported").expect("there is room");
    task.join().expect("it has ended");
}

#[test]
fn large_writes_end_beside_many_small_ones() {
    for workers in [0, 1] {
        let db = options(workers).memory_budget(8 << 20).open("db").expect("a new store");
        let keyspaces = ["a", "b", "c", "d"].map(|name| db.keyspace(name).expect("there is room"));
        let limit = db.stats().memory.memtable_bytes_max;
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            for keyspace in &keyspaces {
                scope.spawn(|| {
                    for key in 0_u64.. {
                        keyspace.insert(key.to_be_bytes(), [7; 1000]).expect("there is room");
                        if is_done.load(Relaxed) {
                            break;
                        }
                    }
                });
            }
            let ended = panic::catch_unwind(AssertUnwindSafe(|| {
                (0..3).try_for_each(|_| Writing::begin(db.default_keyspace(), limit * 7 / 10).end())
            }));
            is_done.store(true, Relaxed);
            ended.expect("each write ends").expect("there is room");
        });
    }
}
