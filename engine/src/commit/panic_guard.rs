//! Makes the store read-only after a panic during a write.

use std::thread;

use super::LogHost;
use crate::Error;

/// Makes the store read-only if a panic drops it.
///
/// Held while only the thread with the lock knows the state of the files. Created after the lock is
/// taken, so that it is dropped before the lock is released.
#[derive(Debug)]
#[must_use]
pub(crate) struct PanicGuard<'a, H: LogHost> {
    host: &'a H,
    /// The thread was unwinding from another panic when the guard was created.
    was_panicking: bool,
}

impl<'a, H: LogHost> PanicGuard<'a, H> {
    pub(crate) fn new(host: &'a H) -> Self {
        Self { host, was_panicking: thread::panicking() }
    }
}

impl<H: LogHost> Drop for PanicGuard<'_, H> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.host.poison(Error::WorkerPanicked);
        }
    }
}
