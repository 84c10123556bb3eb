//! Purges of the log, which never precede the state that replaces the entries.
//!
//! openraft 0.9 purges the log up to a snapshot before the snapshot is installed. A crash in
//! between would leave neither the entries nor the snapshot. Such a purge is postponed: it only
//! hides the entries, and the commit that ends the installation removes them. openraft appends no
//! entry in between.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sievedb::{Batch, Durability};

use crate::{
    Error, Result,
    record::{APPLIED, PURGED, Records, encode, entry_key, entry_keys},
    series::{AppliedOf, Series},
};

/// A purge that is not in the store yet.
#[derive(Clone)]
pub(crate) struct PostponedPurge {
    index: u64,
    /// The encoded id of the last entry that is purged.
    log_id: Vec<u8>,
}

impl PostponedPurge {
    /// Returns the key of the last entry that is purged.
    pub(crate) fn last_key(&self) -> [u8; 9] {
        entry_key(self.index)
    }

    pub(crate) fn log_id<S: Series>(&self) -> Result<S::LogId> {
        Ok(postcard::from_bytes(&self.log_id)?)
    }
}

/// The purge that waits for an installation. Held while a purge or the end of an installation is
/// committed.
pub(crate) type Postponed = Arc<Mutex<Option<PostponedPurge>>>;

impl Records {
    pub(crate) fn postponed_purge(&self) -> MutexGuard<'_, Option<PostponedPurge>> {
        self.postponed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the entries up to `log_id`, once the state machine contains them. Not synced: what
    /// is lost of it is purged again.
    pub(crate) fn purge_to<S: Series>(&self, log_id: &S::LogId) -> Result<()> {
        let mut postponed = self.postponed_purge();
        let index = S::index(log_id);
        if self.applied_index::<S>()? < Some(index) {
            *postponed = Some(PostponedPurge { index, log_id: encode(log_id)? });
            return Ok(());
        }
        let mut batch = self.db.batch();
        self.add_purge::<S>(&mut batch, log_id)?;
        batch.commit(Durability::OsBuffer)?;
        postponed.take_if(|purge| purge.index <= index);
        Ok(())
    }

    /// Commits and syncs `batch`, which ends the installation of a snapshot up to `log_id`, and
    /// removes the entries up to there by the same commit.
    pub(crate) fn commit_installation<S: Series>(
        &self,
        mut batch: Batch,
        log_id: Option<&S::LogId>,
    ) -> Result<()> {
        let mut postponed = self.postponed_purge();
        let index = log_id.map(S::index);
        if let Some(log_id) = log_id
            && self.purged_index::<S>()? < index
        {
            self.add_purge::<S>(&mut batch, log_id)?;
        }
        batch.commit(Durability::Disk)?;
        postponed.take_if(|purge| Some(purge.index) <= index);
        Ok(())
    }

    fn add_purge<S: Series>(&self, batch: &mut Batch, log_id: &S::LogId) -> Result<()> {
        batch.remove_range(&self.keyspace, entry_keys(&(..=S::index(log_id))))?;
        Ok(batch.insert(&self.keyspace, PURGED, encode(log_id)?)?)
    }

    /// Checks that the state machine contains all purged entries. Earlier versions purged the log
    /// before they installed a snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::Incomplete`] if it does not.
    pub(crate) fn check_purged<S: Series>(&self) -> Result<()> {
        let (purged, applied) = (self.purged_index::<S>()?, self.applied_index::<S>()?);
        match purged.filter(|_| applied < purged) {
            Some(purged) => Err(Error::Incomplete { purged, applied }),
            None => Ok(()),
        }
    }

    fn applied_index<S: Series>(&self) -> Result<Option<u64>> {
        let applied = self.read::<AppliedOf<S>>(APPLIED)?.unwrap_or_default();
        Ok(applied.log_id.as_ref().map(S::index))
    }

    fn purged_index<S: Series>(&self) -> Result<Option<u64>> {
        Ok(self.read::<S::LogId>(PURGED)?.as_ref().map(S::index))
    }
}
