//! Checkpoints.

use std::sync::Arc;

use sievedb::{Durability, Error, Options};

use super::Recorder;
use crate::{history::CrashPoint, observe::observe};

impl Recorder {
    /// Takes a checkpoint in the directory `path`, and compares it with the store. Returns whether
    /// it succeeded.
    ///
    /// # Panics
    ///
    /// If the checkpoint differs from the store, or one that failed can be opened and differs.
    pub fn checkpoint(&mut self, path: &str) -> bool {
        let Some(db) = self.db.clone() else { return false };
        let taken = self.accept("take a checkpoint", db.checkpoint(path)).is_some();
        match self.check_checkpoint(path) {
            Ok(()) => {}
            Err(Error::NoStore { .. } | Error::Corrupt { .. }) if !taken => {}
            Err(error) => panic!("the checkpoint {path} cannot be opened: {error:?}"),
        }
        taken
    }

    /// Compares the checkpoint in `path` with the store. Changes nothing.
    fn check_checkpoint(&self, path: &str) -> Result<(), Error> {
        let options: Options = self.options.clone().fs(Arc::clone(&self.disk) as _);
        let copy = options.read_only(true).open(path)?;
        let found = observe(&copy, self.history.keys()).unwrap_or_else(|error| panic!("{error}"));
        // Everything that was acknowledged.
        let now = CrashPoint { at: usize::MAX, survives: Durability::Memory };
        let checked = self.history.check(&found, now);
        checked.unwrap_or_else(|text| panic!("the checkpoint {path}: {text}"));
        let report = copy.verify()?;
        assert!(report.is_good(), "the checkpoint {path}: {report}");
        Ok(())
    }
}
