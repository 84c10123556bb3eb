//! The change stream of a store.

use std::sync::Arc;

use super::Db;
#[cfg(doc)]
use crate::Error;
use crate::{
    Result,
    changes::{Changes, ChangesOptions},
};

impl Db {
    /// Returns the committed batches of **all keyspaces** after the sequence number `since`, in
    /// order, with the defaults of [`ChangesOptions`]. `0` is the beginning, if it is still kept.
    ///
    /// Requires [`Options::retain_changes`](crate::Options::retain_changes). `since` is the
    /// position of an earlier stream ([`Changes::position`]), or the sequence number of a snapshot
    /// ([`Snapshot::sequence`](crate::Snapshot::sequence)).
    ///
    /// A position belongs to one history. A store that was restored, repaired or promoted from a
    /// checkpoint writes other batches under the same numbers, which the call cannot detect:
    /// rebuild each copy from a snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::ChangesLost`] if changes after `since` were dropped, or `since` is in the future;
    /// [`Error::ChangesNotRetained`].
    ///
    /// ```
    /// use sievedb::{ChangeRetention, Options, changes::ChangeKind};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// let retention = ChangeRetention::bytes(64 << 20);
    /// let db = Options::new().retain_changes(retention).open(dir.path())?;
    /// let mut changes = db.changes(db.snapshot().sequence())?;
    ///
    /// db.insert("key", "value")?;
    /// let batch = changes.next().expect("one batch")?;
    /// let [change] = &batch.changes()[..] else { panic!("{batch:?}") };
    /// assert_eq!(change.keyspace_name(), Some("default"));
    /// assert!(matches!(&change.kind, ChangeKind::Insert { key, .. } if key == "key"));
    /// assert!(changes.next().is_none());
    ///
    /// // Later, also after the store was closed: continue with the next batch.
    /// let mut changes = db.changes(changes.position())?;
    /// assert!(changes.next().is_none());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn changes(&self, since: u64) -> Result<Changes> {
        self.changes_with(since, ChangesOptions::new())
    }

    /// Returns a change stream as [`changes`](Self::changes) does, with `options`.
    ///
    /// # Errors
    ///
    /// As [`changes`](Self::changes).
    pub fn changes_with(&self, since: u64, options: ChangesOptions) -> Result<Changes> {
        let open = self.open_store();
        Changes::new(Arc::downgrade(open), Arc::clone(open.accept_shared()?), since, options)
    }
}
