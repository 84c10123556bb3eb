//! Refreshes a follower.

use super::Db;
use crate::Result;
#[cfg(doc)]
use crate::{Error, Options};

impl Db {
    /// Makes visible what the writer of a [followed](Options::follow) store has written since, up to
    /// its newest whole batch. Returns `true` if there was any. Returns `false` for other stores.
    ///
    /// Reads the new part of manifest and log, opens new tables, and copies those memtable entries
    /// that are newer than a flush. Without new writes it costs about 20 us. If the follower is far
    /// behind, it replays the whole log, as an opening does. Calls of several threads run one after
    /// another.
    ///
    /// Existing snapshots and iterators remain as they are. Handles of keyspaces that the writer has
    /// dropped fail with [`Error::KeyspaceDropped`].
    ///
    /// # Errors
    ///
    /// The visible state is unchanged, and the next call tries again. [`Error::Io`];
    /// [`Error::Corrupt`] if a file is damaged; [`Error::FollowerAhead`]; those of options that
    /// this process lacks, as [`Options::open`]; [`Error::Closed`], [`Error::ForkedChild`].
    pub fn refresh(&self) -> Result<bool> {
        self.accept()?.refresh()
    }
}
