//! Refreshes a follower.

use super::Db;
#[cfg(doc)]
use crate::{Error, Options};
use crate::{Result, store::follower::Refreshed};

impl Db {
    /// Makes visible what the writer of a [followed](Options::follow) store has written since, up
    /// to its newest whole batch. Returns `true` if there was any. Returns `false` for other
    /// stores.
    ///
    /// Reads the new part of manifest and log, opens new tables, and copies up to 1/8 of a memtable
    /// after a flush of the writer. Other threads see each MiB of the log as soon as it is read.
    /// Without new writes a call costs about 20 us. If the follower is far behind, it replays the
    /// whole log, as an opening does. Calls of several threads run one after another.
    ///
    /// Existing snapshots and iterators remain as they are. Handles of keyspaces that the writer
    /// has dropped fail with [`Error::KeyspaceDropped`].
    ///
    /// # Errors
    ///
    /// The visible state is unchanged, or has more whole batches. The next call tries again.
    /// [`Error::Io`];
    /// [`Error::Corrupt`] if a file is damaged; [`Error::FollowerAhead`]; those of options that
    /// this process lacks, as [`Options::open`]; [`Error::Closed`], [`Error::ForkedChild`].
    pub fn refresh(&self) -> Result<bool> {
        Ok(self.accept()?.refresh()? != Refreshed::Nothing)
    }
}
