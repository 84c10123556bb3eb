//! The bell that wakes workers.

use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// Wakes workers. Counts its rings, so that none is missed between a look for work and the wait.
/// Its lock is the last in the lock order: a drop may ring under any other lock.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rings: Mutex<u64>,
    rang: Condvar,
}

impl Bell {
    /// Wakes all waiting threads.
    pub(crate) fn ring(&self) {
        *self.rings.lock() += 1;
        self.rang.notify_all();
    }

    /// Returns how often the bell rang so far.
    pub(crate) fn rings(&self) -> u64 {
        *self.rings.lock()
    }

    /// Waits until the bell has rung more than `rings` times, for at most `most`.
    pub(crate) fn wait(&self, rings: u64, most: Option<Duration>) {
        let mut now = self.rings.lock();
        match most {
            Some(most) if *now == rings => {
                self.rang.wait_for(&mut now, most);
            }
            Some(_) => {}
            None => {
                while *now == rings {
                    self.rang.wait(&mut now);
                }
            }
        }
    }
}
