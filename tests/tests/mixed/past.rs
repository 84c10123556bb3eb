//! The past of the default keyspace, under sets of options with a history.

use std::sync::Arc;

use sievedb::{Error, Keyspace};
use sievedb_tests::model::{DEFAULT, shown};

use super::{model::Space, reads::seen, story::Story};

/// Contents of the default keyspace at a sequence number.
#[derive(Debug)]
pub(super) struct Point {
    sequence: u64,
    space: Arc<Space>,
    now_ms: u64,
}

impl Story {
    /// Notes the present contents, to read them later.
    pub(super) fn note_past(&mut self) {
        if self.set.history.is_none() {
            return;
        }
        if self.points.len() == 6 {
            let at = self.lots.below(6);
            self.points.swap_remove(at);
        }
        self.note(|| "note the past".to_owned());
        let (sequence, now_ms) = (self.db().snapshot().sequence(), self.now_ms());
        let space = Arc::clone(&self.history.now().spaces[DEFAULT]);
        self.points.push(Point { sequence, space, now_ms });
    }

    /// Reads some keys as they were at a point.
    pub(super) fn read_past(&mut self) {
        let Some(length) = self.set.history.filter(|_| !self.points.is_empty()) else { return };
        let at = self.lots.below(self.points.len());
        let keys: Vec<_> = (0..6).map(|_| self.key()).collect();
        let Point { sequence, space, now_ms } = &self.points[at];
        let (sequence, now_ms, space) = (*sequence, *now_ms, Arc::clone(space));
        self.note(|| format!("read the past at {sequence}"));
        let visible = self.db().snapshot().sequence();
        let past = match self.handles[&space.id].snapshot_at(sequence) {
            Ok(past) => past,
            Err(Error::NotInHistory { oldest, .. }) => {
                assert!(sequence + length < visible, "{sequence} of {visible}, from {oldest:?}");
                self.count("(past that is gone)");
                return;
            }
            Err(error) => return self.tolerate("read the past", &error),
        };
        self.count("(past that is read)");
        for key in keys {
            let got = match seen(past.get(&key)) {
                Ok(got) => got,
                Err(error) => return self.tolerate("read the past", &error),
            };
            // The clock of the snapshot is known to a second, and is the present one if no write
            // came since.
            let clocks = [0, now_ms, self.now_ms()];
            let then = clocks.map(|clock_ms| space.get(&key, clock_ms));
            assert!(then.contains(&got), "{} at {sequence}: {got:?}, not {then:?}", shown(&key));
        }
    }

    /// Forgets the points of a keyspace that was cleared, which ends its history.
    pub(super) fn forget_past(&mut self, handle: &Keyspace) {
        if handle.name() == DEFAULT {
            self.points.clear();
        }
    }
}
