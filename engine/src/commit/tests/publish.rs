//! Writes become visible in sequence order, and waiting threads are notified.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use sievedb_format::SequenceNumber;

use super::{below, explore};
use crate::{
    commit::{InFlight, PublishQueue, Write},
    sync::{Mutex, thread},
};

const WRITERS: usize = 4;

/// The queue, and invariants that hold under every schedule.
#[derive(Debug)]
struct Model {
    queue: PublishQueue,
    /// The last placed sequence number, and the writes in order: last sequence number, and `true`
    /// if all of its entries are inserted.
    placed: Mutex<SequenceNumber>,
    writes: [Written; WRITERS],
    newest_seen: AtomicU64,
}

#[derive(Debug, Default)]
struct Written {
    /// Sequence numbers of its first and last entry; 0 before it is placed.
    first: AtomicU64,
    last: AtomicU64,
    inserted: AtomicBool,
}

impl Model {
    fn place(&self, writer: usize, entries: u64) -> Arc<InFlight> {
        let mut placed = self.placed.lock();
        let (first, last) = (*placed + 1, *placed + entries);
        *placed = last;
        self.writes[writer].first.store(first, SeqCst);
        self.writes[writer].last.store(last, SeqCst);
        let write = Arc::new(InFlight::new(first, last, Write::default()));
        self.queue.push(Arc::clone(&write));
        write
    }

    fn complete(&self, writer: usize, write: &InFlight) {
        self.writes[writer].inserted.store(true, SeqCst);
        self.queue.complete(write);
    }

    /// Reads the visible sequence number and checks it. No other thread runs between the read and
    /// the end of the checks.
    fn look(&self) -> SequenceNumber {
        let visible = self.queue.visible();
        let newest = self.newest_seen.fetch_max(visible, SeqCst);
        assert!(visible >= newest, "{visible} is visible after {newest} was");
        for write in &self.writes {
            let (first, last) = (write.first.load(SeqCst), write.last.load(SeqCst));
            if first != 0 && first <= visible {
                assert!(last <= visible, "a part of the write {first} to {last} is visible");
                assert!(write.inserted.load(SeqCst), "{first} is visible before it is inserted");
            }
        }
        visible
    }
}

/// Each writer completes its own write, as threads of a store do. One thread observes, and one
/// waits for all writes, as a flush does.
#[test]
fn writes_become_visible_in_order() {
    explore(5000, || {
        let model = &Model {
            queue: PublishQueue::new(0),
            placed: Mutex::new(0),
            writes: Default::default(),
            newest_seen: AtomicU64::new(0),
        };
        let entries: Vec<u64> = (0..WRITERS).map(|_| 1 + below(3)).collect();
        let all = entries.iter().sum();
        thread::scope(|scope| {
            for (writer, entries) in entries.into_iter().enumerate() {
                scope.spawn(move || {
                    let write = model.place(writer, entries);
                    model.look();
                    model.complete(writer, &write);
                    model.queue.wait_published(&write);
                    assert!(model.look() >= write.last, "{} is acknowledged too early", write.last);
                });
            }
            scope.spawn(move || {
                for _ in 0..4 {
                    model.look();
                }
            });
            scope.spawn(move || {
                model.queue.wait_visible(all);
                assert_eq!(model.look(), all);
            });
        });
        assert_eq!(model.look(), all);
    });
}

/// The thread of a write may be one that an executor parks: it polls a task, and parks until the
/// waker of the task. The waker may come while the write waits.
#[test]
fn a_wait_returns_the_token_of_an_executor() {
    explore(2000, || {
        let queue = &PublishQueue::new(0);
        let write = Arc::new(InFlight::new(1, 1, Write::default()));
        queue.push(Arc::clone(&write));
        let (is_ready, executor) = (&AtomicBool::new(false), &Mutex::new(None));
        thread::scope(|scope| {
            let waiting = Arc::clone(&write);
            scope.spawn(move || {
                *executor.lock() = Some(thread::current());
                while !is_ready.load(SeqCst) {
                    queue.wait_published(&waiting);
                    thread::park();
                }
            });
            scope.spawn(move || {
                is_ready.store(true, SeqCst);
                let thread = executor.lock().clone();
                if let Some(thread) = thread {
                    thread.unpark();
                }
            });
            queue.complete(&write);
        });
    });
}
