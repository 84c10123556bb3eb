//! Closes during jobs that a wait for room executes, without workers.

use super::{
    priorities::{freeze, options},
    *,
};
use crate::RoomFuture;

/// Longer than any of these calls takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Returns a wait for room that flushes a memtable.
fn room_with_flush(db: &Db) -> RoomFuture {
    freeze(db, "a", 1);
    db.store().scheduler.wake();
    db.room()
}

/// Begins the wait on another thread.
fn begin(room: RoomFuture) -> mpsc::Receiver<crate::Result<()>> {
    let (sender, waited) = mpsc::channel();
    thread::spawn(move || sender.send(room.wait()));
    waited
}

/// Otherwise the flush would change files that another process owns by then.
#[test]
fn a_close_waits_for_a_flush_of_another_thread() {
    let ((sender, stopped), (resume, receiver)) = (mpsc::channel(), mpsc::channel());
    let listener = Stops { stopped: sender, resume: Mutex::new(receiver) };
    let db = options(0).listener(Arc::new(listener)).open("db").expect("a new store");
    let waited = begin(room_with_flush(&db));
    stopped.recv_timeout(LONG).expect("it flushes");
    let (sender, closed) = mpsc::channel();
    thread::spawn(move || sender.send(db.close().is_ok()));
    assert!(closed.recv_timeout(Duration::from_millis(200)).is_err(), "the flush is in flight");
    resume.send(()).expect("it waits");
    assert!(closed.recv_timeout(LONG).expect("it ends"), "no call fails");
    let waited = waited.recv_timeout(LONG).expect("it ends");
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
}

/// Drops a handle within a flush.
#[derive(Debug, Default)]
struct Drops(Mutex<Option<Db>>);

impl EventListener for Drops {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Flushed { .. }) {
            let db = self.0.lock().take();
            drop(db);
        }
    }
}

/// It cannot wait for the job of its own thread.
#[test]
fn a_listener_may_close_the_store_within_a_flush() {
    let listener = Arc::<Drops>::default();
    let db = options(0).listener(Arc::clone(&listener) as _).open("db").expect("a new store");
    let room = room_with_flush(&db);
    *listener.0.lock() = Some(db);
    let waited = begin(room).recv_timeout(LONG).expect("no deadlock");
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
}

/// Drops a handle within a flush of the keyspace `drops`, and stops within other flushes.
#[derive(Debug)]
struct DropsOrStops {
    drops: Drops,
    stops: Stops,
}

impl EventListener for DropsOrStops {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Flushed { keyspace, .. } if **keyspace == *"drops" => self.drops.on_event(event),
            _ => self.stops.on_event(event),
        }
    }
}

/// It is not the job of its own thread.
#[test]
fn a_close_within_a_flush_waits_for_that_of_another_thread() {
    let ((sender, stopped), (resume, receiver)) = (mpsc::channel(), mpsc::channel());
    let stops = Stops { stopped: sender, resume: Mutex::new(receiver) };
    let listener = Arc::new(DropsOrStops { drops: Drops::default(), stops });
    let db = options(0).listener(Arc::clone(&listener) as _).open("db").expect("a new store");
    let other = begin(room_with_flush(&db));
    stopped.recv_timeout(LONG).expect("it flushes");
    freeze(&db, "drops", 1);
    db.store().scheduler.wake();
    let room = db.room();
    *listener.drops.0.lock() = Some(db);
    let closing = begin(room);
    let early = closing.recv_timeout(Duration::from_millis(200));
    assert!(early.is_err(), "the other flush is in flight");
    resume.send(()).expect("it waits");
    for thread in [closing, other] {
        let waited = thread.recv_timeout(LONG).expect("no deadlock");
        assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    }
}
