//! What a panic in the middle of a write leaves.

use std::thread;

use super::LogHost;
use crate::Error;

/// Makes the store read-only if a panic drops it.
///
/// Held while files are in a state that only the thread with their lock knows. Made after the lock
/// is taken, so that it is dropped before the lock is released.
#[derive(Debug)]
#[must_use]
pub(crate) struct PanicGuard<'a, H: LogHost> {
    host: &'a H,
    /// A store may be written to and closed while its thread unwinds from another panic.
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
