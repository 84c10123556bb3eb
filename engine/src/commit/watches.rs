//! Watches: writes placed while a condition is evaluated outside of the placement lock.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::{InFlight, Write};

/// Identifies a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchId(u64);

/// The keys of a condition.
pub(crate) trait WatchedKeys: fmt::Debug + Send + Sync {
    /// Returns the first of the keys that `write` writes. Called under the placement lock.
    fn first_written(&self, write: &Write) -> Option<WrittenKey>;
}

/// A watched key that was written.
#[derive(Debug)]
pub(crate) struct WrittenKey {
    /// Index of the keyspace in the condition.
    pub(crate) keyspace: usize,
    /// The key with its hash. `None` after an ingest, or a range delete that overlaps the keys.
    pub(crate) key: Option<(Bytes, u64)>,
}

/// The current watches. Usually there are none, which costs a write one comparison.
#[derive(Debug, Default)]
pub(super) struct Watches {
    next_id: u64,
    watches: Vec<Watch>,
}

/// Looks for the keys of a condition in writes.
#[derive(Debug)]
struct Watch {
    id: WatchId,
    keys: Arc<dyn WatchedKeys>,
    /// The first key since the last [`take`](Watches::take). Later ones are not searched for: the
    /// first one usually decides.
    written: Option<WrittenKey>,
}

impl Watch {
    fn note(&mut self, write: &Write) {
        if self.written.is_none() {
            self.written = self.keys.first_written(write);
        }
    }
}

impl Watches {
    /// Begins to look for `keys` in writes, beginning with those `in_flight`.
    pub(super) fn begin(
        &mut self,
        keys: Arc<dyn WatchedKeys>,
        in_flight: &[Arc<InFlight>],
    ) -> WatchId {
        let id = WatchId(self.next_id);
        self.next_id += 1;
        let mut watch = Watch { id, keys, written: None };
        in_flight.iter().for_each(|in_flight| watch.note(&in_flight.write));
        self.watches.push(watch);
        id
    }

    /// Returns the first key that was written since the last call.
    pub(super) fn take(&mut self, id: WatchId) -> Option<WrittenKey> {
        let watch = self.watches.iter_mut().find(|watch| watch.id == id);
        watch.expect("a watch that was begun").written.take()
    }

    pub(super) fn end(&mut self, id: WatchId) {
        let before = self.watches.len();
        self.watches.retain(|watch| watch.id != id);
        debug_assert_eq!(self.watches.len() + 1, before, "a watch ends once");
    }

    #[inline]
    pub(super) fn note(&mut self, write: &Write) {
        for watch in &mut self.watches {
            watch.note(write);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// Finds a key in every write.
    #[derive(Debug)]
    struct AllKeys;

    impl WatchedKeys for AllKeys {
        fn first_written(&self, _: &Write) -> Option<WrittenKey> {
            Some(WrittenKey { keyspace: 0, key: None })
        }
    }

    #[test]
    fn no_write_is_kept() {
        let write = |last| Arc::new(InFlight::new(last, last, Write::default()));
        let (in_flight, later) = ([write(1), write(2)], [write(3), write(4)]);
        let mut watches = Watches::default();
        let id = watches.begin(Arc::new(AllKeys), &in_flight);
        later.iter().for_each(|in_flight| watches.note(&in_flight.write));
        assert!(in_flight.iter().chain(&later).all(|write| Arc::strong_count(write) == 1));
        assert!(watches.take(id).is_some());
        assert!(watches.take(id).is_none());
        watches.end(id);
    }
}
