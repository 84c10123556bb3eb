//! Refreshes a follower.

use super::Db;
#[cfg(doc)]
use crate::{Error, Options};
use crate::{Result, store::follower::Refreshed};

impl Db {
    /// Makes new writes of a [followed](Options::follow) store visible, up to the newest whole
    /// batch. Returns `true` if there were any. Returns `false` for other stores.
    ///
    /// Reads the new part of manifest and log, opens new tables, and copies up to 1/8 of a memtable
    /// after a flush of the writer. Other threads see each MiB of the log as soon as it is read.
    /// Without new writes a call costs about 20 us. If the follower is far behind, the call replays
    /// the whole log, as an open does. Concurrent calls run one after another.
    ///
    /// Existing snapshots and iterators remain as they are. Handles of keyspaces that the writer
    /// has dropped fail with [`Error::KeyspaceDropped`].
    ///
    /// # Errors
    ///
    /// The visible state is unchanged, or has more whole batches. The next call continues.
    /// [`Error::Io`]; [`Error::Corrupt`] if a file is damaged; [`Error::FollowerAhead`]; errors of
    /// missing options, as for [`Options::open`]; [`Error::Closed`], [`Error::ForkedChild`].
    pub fn refresh(&self) -> Result<bool> {
        Ok(self.accept()?.refresh()? != Refreshed::Nothing)
    }
}
