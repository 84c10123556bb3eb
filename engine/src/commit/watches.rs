//! Watches: writes placed while a condition is evaluated outside of the placement lock.

use std::{mem, sync::Arc};

use super::InFlight;

/// Identifies a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchId(u64);

/// The current watches. Usually there are none, which costs a write one comparison.
#[derive(Debug, Default)]
pub(super) struct Watches {
    next_id: u64,
    watches: Vec<Watch>,
}

/// Collects the writes to some keyspaces.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    /// Ids of keyspaces, ascending.
    keyspaces: Vec<u64>,
    /// Writes since the last [`take`](Watches::take).
    writes: Vec<Arc<InFlight>>,
}

impl Watch {
    fn note(&mut self, write: &Arc<InFlight>) {
        let targets = &write.write.targets;
        let trees = targets.iter().map(|target| &target.tree).chain(&write.write.ingests);
        if trees.into_iter().any(|tree| self.keyspaces.binary_search(&tree.id).is_ok()) {
            self.writes.push(Arc::clone(write));
        }
    }
}

impl Watches {
    /// Begins to collect the writes to `keyspaces`, beginning with those `in_flight`.
    pub(super) fn begin(
        &mut self,
        mut keyspaces: Vec<u64>,
        in_flight: &[Arc<InFlight>],
    ) -> WatchId {
        keyspaces.sort_unstable();
        let id = WatchId(self.next_id);
        self.next_id += 1;
        let mut watch = Watch { id, keyspaces, writes: Vec::new() };
        in_flight.iter().for_each(|write| watch.note(write));
        self.watches.push(watch);
        id
    }

    /// Returns the writes since the last call.
    pub(super) fn take(&mut self, id: WatchId) -> Vec<Arc<InFlight>> {
        let watch = self.watches.iter_mut().find(|watch| watch.id == id);
        mem::take(&mut watch.expect("a watch that was begun").writes)
    }

    pub(super) fn end(&mut self, id: WatchId) {
        let before = self.watches.len();
        self.watches.retain(|watch| watch.id != id);
        debug_assert_eq!(self.watches.len() + 1, before, "a watch ends once");
    }

    #[inline]
    pub(super) fn note(&mut self, write: &Arc<InFlight>) {
        for watch in &mut self.watches {
            watch.note(write);
        }
    }
}
