//! Keyspaces with a history.

use sievedb::{Db, Error, HistoryLength};

use super::Recorder;
use crate::{
    history::{History, Past},
    model::Entries,
    observe::keyspace,
};

/// Sequence numbers between two synced writes: a power cut may take so many back, after a merge cut
/// the history by them.
const LOST_MAX: u64 = 12;

impl Recorder {
    /// Notes what a keyspace with a history contains now. Only if no call may fail: a failed write
    /// may take sequence numbers.
    pub fn note_past(&mut self, name: &str) {
        if self.failures.is_none() && self.handle(name).is_some() {
            let sequence = self.db().snapshot().sequence();
            self.history.note_past(sequence, name);
        }
    }

    /// Changes how long a keyspace keeps its history, if it exists.
    pub fn set_history(&mut self, name: &str, length: Option<HistoryLength>) {
        let Some(handle) = self.handle(name).cloned() else { return };
        let set = handle.set_options(handle.options().keep_history(length));
        self.accept("set the length of a history", set);
    }

    /// Compares the past of the store with what was noted.
    ///
    /// # Panics
    ///
    /// If they differ.
    pub fn check_past(&self) {
        if let Some(db) = &self.db {
            check_past(db, &self.history).unwrap_or_else(|text| panic!("{text}"));
        }
    }
}

/// Compares the past of `db` with that of `history`, up to the last write that it has.
///
/// # Errors
///
/// The first difference.
pub(super) fn check_past(db: &Db, history: &History) -> Result<(), String> {
    let visible = db.snapshot().sequence();
    let names = db.keyspaces().expect("it is open");
    let noted = history.pasts().iter().filter(|past| past.sequence <= visible);
    for Past { sequence, keyspace: name, entries } in noted {
        if !names.iter().any(|it| **it == **name) {
            continue;
        }
        let past = keyspace(db, name).map_err(|error| format!("{name}: {error:?}"))?;
        let Some(length) = past.options().get_history() else { continue };
        let oldest = match length {
            HistoryLength::Sequences(count) => (visible + LOST_MAX).saturating_sub(count),
            _ => 0,
        };
        let snapshot = match past.snapshot_at(*sequence) {
            Ok(snapshot) => snapshot,
            Err(Error::NotInHistory { .. }) if *sequence < oldest => continue,
            Err(error) => return Err(format!("{name} at {sequence} of {visible}: {error:?}")),
        };
        let found: Result<Entries, Error> = snapshot.iter().collect();
        let found = found.map_err(|error| format!("{name} at {sequence}: {error:?}"))?;
        if found != *entries {
            return Err(format!("{name} at {sequence} of {visible}: {found:?}, not {entries:?}"));
        }
    }
    Ok(())
}
