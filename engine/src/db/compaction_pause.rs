//! Pauses of compactions.

use std::fmt;

use crate::{Db, Result};

/// A guard of a pause of compactions, returned by [`Db::pause_compactions`]. The drop ends the
/// pause. Keeps the store open, as a [`Db`] does.
#[must_use = "dropping it ends the pause"]
pub struct CompactionPause {
    db: Db,
}

impl Db {
    /// Pauses compactions of all keyspaces until the returned guard is dropped. Compactions in
    /// flight are cancelled, and their output is removed; the call waits for their end. With
    /// several guards, the drop of the last one resumes compactions.
    ///
    /// During the pause:
    ///
    /// * Flushes continue. Level 0 and the compaction debt neither delay nor stop writes: runs
    ///   accumulate, and reads become slower. After the pause writes are delayed, or stopped from
    ///   32 runs of level 0 on, until compactions catch up.
    /// * Overwritten, removed and expired entries keep their space.
    /// * [`compact`](Self::compact) and [`compact_range`](Self::compact_range) fail with
    ///   [`Error::CompactionsPaused`](crate::Error::CompactionsPaused), including calls in flight.
    /// * [`wait_for_background`](Self::wait_for_background) does not wait for compactions.
    ///
    /// Must not be called by a compaction filter or a merge operator: the call would wait for the
    /// compaction that called it.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) after a [`shutdown`](Self::shutdown);
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) if a compaction in flight cannot end, because a
    /// thread panicked.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use sievedb::{Db, Error};
    ///
    /// let db = Db::open(dir.path())?;
    /// let pause = db.pause_compactions()?;
    /// db.insert("key", "value")?;
    /// db.flush()?;
    /// assert!(matches!(db.compact(), Err(Error::CompactionsPaused)));
    /// drop(pause);
    /// db.compact()?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn pause_compactions(&self) -> Result<CompactionPause> {
        self.accept()?.pause_compactions()?;
        Ok(CompactionPause { db: self.clone() })
    }
}

impl Drop for CompactionPause {
    fn drop(&mut self) {
        // Nothing to resume in a closed store or a forked child.
        if let Ok(store) = self.db.accept() {
            store.scheduler.resume_compactions();
        }
    }
}

impl fmt::Debug for CompactionPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionPause").finish_non_exhaustive()
    }
}
