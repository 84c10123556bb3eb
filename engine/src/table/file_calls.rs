//! Calls that create or replace files of a store. A shutdown waits for their end, because the next
//! owner of the store may use the same names.

use std::{sync::Arc, time::Duration};

use crate::{
    Error, Result,
    clock::{Clock, SystemClock},
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Counts the calls in flight, and refuses new ones once the store is closing.
#[derive(Debug, Default)]
pub(crate) struct FileCalls {
    in_flight: Mutex<usize>,
    ended: Condvar,
    /// Written under the lock of `in_flight`.
    is_closing: Arc<AtomicBool>,
}

impl FileCalls {
    /// Counts a call until the guard is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the store is closing.
    pub(crate) fn begin(&self) -> Result<FileCall<'_>> {
        let mut in_flight = self.in_flight.lock();
        if self.is_closing() {
            return Err(Error::Closed);
        }
        *in_flight += 1;
        Ok(FileCall(self))
    }

    /// Waits until no call is in flight, for at most `timeout`. Returns `true` if none is. Called
    /// after [`close`](Self::close): no call begins any more.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let clock = SystemClock::new();
        let mut in_flight = self.in_flight.lock();
        while *in_flight > 0 {
            let Some(left) = timeout.checked_sub(clock.now()) else { return false };
            self.ended.wait_for(&mut in_flight, left);
        }
        true
    }

    pub(super) fn close(&self) {
        let _in_flight = self.in_flight.lock();
        self.is_closing.store(true, Relaxed);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Returns the flag that the store is closing, for a call that it cancels.
    pub(super) fn closing_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_closing)
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct FileCall<'a>(&'a FileCalls);

impl Drop for FileCall<'_> {
    fn drop(&mut self) {
        let mut in_flight = self.0.in_flight.lock();
        debug_assert!(*in_flight > 0, "each call counts itself once");
        *in_flight -= 1;
        self.0.ended.notify_all();
    }
}
