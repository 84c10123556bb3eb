//! A write between placing and publishing, and the guard against a panic meanwhile.

use std::{ops::Deref, sync::Arc, thread};

use super::{InFlight, LogHost, PublishQueue};
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

/// A placed write. Drop completes it, so that no later write waits for it.
///
/// If a panic drops it, the store becomes read-only: the log may have the write or not.
#[derive(Debug)]
pub(crate) struct PlacedWrite<'a, H: LogHost> {
    publish: &'a PublishQueue,
    in_flight: Arc<InFlight>,
    guard: Option<PanicGuard<'a, H>>,
}

impl<'a, H: LogHost> PlacedWrite<'a, H> {
    /// Guards a write that was placed in `publish` of the store `host`.
    pub(crate) fn new(host: &'a H, publish: &'a PublishQueue, in_flight: Arc<InFlight>) -> Self {
        Self { publish, in_flight, guard: Some(PanicGuard::new(host)) }
    }

    /// Completes the write and waits until everything up to it is visible.
    pub(crate) fn publish(self) -> Arc<InFlight> {
        let (publish, in_flight) = (self.publish, Arc::clone(&self.in_flight));
        drop(self);
        publish.wait_visible(in_flight.last);
        debug_assert!(in_flight.is_done(), "a visible write is complete");
        debug_assert!(publish.visible() >= in_flight.last);
        in_flight
    }
}

impl<H: LogHost> Deref for PlacedWrite<'_, H> {
    type Target = InFlight;

    fn deref(&self) -> &InFlight {
        &self.in_flight
    }
}

impl<H: LogHost> Drop for PlacedWrite<'_, H> {
    fn drop(&mut self) {
        // First: no write that waits for this one may be acknowledged after a panic.
        self.guard = None;
        self.publish.complete(&self.in_flight);
    }
}
