//! A reader of the change stream beside the writes.

use sievedb::{ChangeRetention, Error};

use super::Recorder;
use crate::{
    model::Model,
    stream::{Follower, Received},
};

impl Recorder {
    /// Opens the store again with this retention of changes, and begins to read them.
    pub fn retain_changes(&mut self, retention: ChangeRetention) {
        self.history.set_received(None);
        self.options = self.options.clone().retain_changes(retention);
        self.reopen();
        let failed = self.failures.as_ref().is_some_and(|failures| !failures.is_empty());
        let Some(db) = self.db.clone().filter(|_| !failed && !retention.is_none()) else { return };
        let follower = Follower::new(&db, self.history.model().clone());
        let Some(follower) = self.accept("open a keyspace", follower) else { return };
        let after = db.snapshot().sequence();
        self.history.set_received(Some(Received::new(after, follower, self.disk.operations())));
    }

    /// Reads the stream up to its end. Begins again if the store has dropped the next changes.
    pub fn follow(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let Some(mut received) = self.history.received().cloned() else { return };
        match received.read(&db, || self.disk.operations()) {
            Err(Error::ChangesLost { .. }) => {
                let Some(found) = self.observe() else { return };
                let follower = Follower::new(&db, found);
                let Some(follower) = self.accept("open a keyspace", follower) else { return };
                let after = db.snapshot().sequence();
                self.history.set_received(Some(Received::new(
                    after,
                    follower,
                    self.disk.operations(),
                )));
            }
            read => {
                // Batches before a failure were returned.
                self.history.set_received(Some(received));
                let _ = self.accept("read the change stream", read);
            }
        }
    }

    pub(super) fn check_received(&mut self, found: &Model) {
        let (Some(db), Some(received)) = (self.db.clone(), self.history.received()) else { return };
        if self.failures.is_some() && self.healed.is_none() {
            // The stream may fail as any read.
            return;
        }
        if let Err(text) = received.check(&db, found) {
            panic!("{text}");
        }
    }
}
