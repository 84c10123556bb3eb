//! The turn of a write that waits for room in memtables.
//!
//! Other writes wait until it is placed, or fails. Otherwise smaller ones would take the room that
//! each flush makes, and a large one could wait without end.

use crate::sync::{
    Condvar, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Held by at most one write.
#[derive(Debug, Default)]
pub(in crate::store) struct RoomTurns {
    /// Written under the lock of `ended`. Other writes check it under the placement lock, which the
    /// holder takes afterwards: from then on none is placed.
    is_held: AtomicBool,
    /// Number of turns that have ended.
    ended: Mutex<u64>,
    end: Condvar,
}

impl RoomTurns {
    /// Returns whether a write has the turn.
    pub(in crate::store) fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// Begins a turn. If another write has it, waits for its end and returns `None`.
    ///
    /// The caller holds no lock that a flush needs.
    pub(in crate::store) fn begin(&self) -> Option<RoomTurn<'_>> {
        let mut ended = self.ended.lock();
        if !self.is_held.swap(true, Relaxed) {
            return Some(RoomTurn(self));
        }
        let before = *ended;
        while *ended == before {
            self.end.wait(&mut ended);
        }
        None
    }
}

/// Ends the turn when dropped.
#[derive(Debug)]
pub(in crate::store) struct RoomTurn<'a>(&'a RoomTurns);

impl Drop for RoomTurn<'_> {
    fn drop(&mut self) {
        let mut ended = self.0.ended.lock();
        *ended += 1;
        self.0.is_held.store(false, Relaxed);
        drop(ended);
        self.0.end.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn a_turn_begins_after_the_end_of_the_last_one() {
        let turns = RoomTurns::default();
        let turn = turns.begin().expect("no write has it");
        let (sender, ended) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(turns.begin().is_none()));
            assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
            assert!(turns.is_held());
            drop(turn);
            assert!(ended.recv_timeout(Duration::from_secs(30)).expect("it is notified"));
        });
        assert!(!turns.is_held());
        drop(turns.begin().expect("the turn has ended"));
    }
}
