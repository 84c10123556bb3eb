//! A write between placing and publishing.

use std::{ops::Deref, sync::Arc};

use super::Store;
use crate::commit::{InFlight, PanicGuard};

/// A placed write. Drop completes it, so that no later write waits for it.
///
/// If a panic drops it, the store becomes read-only: the write may be in the log or not.
#[derive(Debug)]
pub(crate) struct PlacedWrite<'a> {
    store: &'a Store,
    in_flight: Arc<InFlight>,
    guard: Option<PanicGuard<'a, Store>>,
}

impl<'a> PlacedWrite<'a> {
    /// Guards a write that has just been placed in `store`.
    pub(super) fn new(store: &'a Store, in_flight: Arc<InFlight>) -> Self {
        Self { store, in_flight, guard: Some(PanicGuard::new(store)) }
    }

    /// Completes the write and waits until everything up to it is visible.
    pub(super) fn publish(self) -> Arc<InFlight> {
        let (store, in_flight) = (self.store, Arc::clone(&self.in_flight));
        drop(self);
        store.publish.wait_visible(in_flight.last);
        in_flight
    }
}

impl Deref for PlacedWrite<'_> {
    type Target = InFlight;

    fn deref(&self) -> &InFlight {
        &self.in_flight
    }
}

impl Drop for PlacedWrite<'_> {
    fn drop(&mut self) {
        // First: no write that waits for this one may be acknowledged after a panic.
        self.guard = None;
        self.store.publish.complete(&self.in_flight);
    }
}
