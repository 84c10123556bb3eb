//! Snapshots of a store.

use std::sync::Arc;

use crate::{
    Error, Keyspace, PointInTime, ReadOptions, Result,
    handle_counts::HandleKind,
    held_sequence::HeldSequence,
    reader::{Reader, read_methods},
};

/// A view of all keyspaces of a store at one point in time.
///
/// Has no lifetime. While it exists, the versions visible to it are kept. Its methods read the
/// default keyspace; [`keyspace`](Self::keyspace) returns a snapshot of any keyspace.
#[derive(Debug, Clone)]
pub struct Snapshot {
    default: KeyspaceSnapshot,
}

/// A view of a keyspace at one point in time.
#[derive(Debug)]
pub struct KeyspaceSnapshot {
    keyspace: Keyspace,
    held: Arc<HeldSequence>,
}

impl Clone for KeyspaceSnapshot {
    fn clone(&self) -> Self {
        let keyspace = self.keyspace.of_kind(HandleKind::Snapshot);
        Self { keyspace, held: Arc::clone(&self.held) }
    }
}

impl Snapshot {
    /// Returns a snapshot of the past.
    pub(crate) fn of_past(default: &Keyspace, point: PointInTime) -> Result<Self> {
        KeyspaceSnapshot::of_past(default, point).map(|default| Self { default })
    }

    /// Returns the sequence number of the newest write visible to the snapshot, for
    /// [`Db::snapshot_at`](crate::Db::snapshot_at).
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.default.sequence()
    }

    pub(crate) fn new(default: &Keyspace) -> Self {
        let held = Arc::new(HeldSequence::new(Arc::clone(default.open_store())));
        let keyspace = default.of_kind(HandleKind::Snapshot);
        Self { default: KeyspaceSnapshot { keyspace, held } }
    }

    /// Returns `keyspace` at the time of this snapshot. A keyspace created later is empty.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignKeyspace`] if it belongs to another store; [`Error::NotInHistory`] if this
    /// snapshot is one [of the past](crate::Db::snapshot_at), and the history of the keyspace began
    /// later.
    pub fn keyspace(&self, keyspace: impl AsRef<Keyspace>) -> Result<KeyspaceSnapshot> {
        let keyspace = keyspace.as_ref();
        if !Arc::ptr_eq(keyspace.open_store(), self.default.held.open()) {
            return Err(Error::ForeignKeyspace { name: keyspace.name() });
        }
        self.default.held.check_kept_in(keyspace.tree())?;
        let held = Arc::clone(&self.default.held);
        Ok(KeyspaceSnapshot { keyspace: keyspace.of_kind(HandleKind::Snapshot), held })
    }
}

read_methods!(Snapshot, default);

impl KeyspaceSnapshot {
    /// Returns `keyspace` at a point in the past.
    pub(crate) fn of_past(keyspace: &Keyspace, point: PointInTime) -> Result<Self> {
        let (open, tree) = (keyspace.open_store(), keyspace.tree());
        open.accept()?;
        tree.check()?;
        let held = HeldSequence::of_past(Arc::clone(open), point, tree)?;
        let held = held.ok_or_else(|| open.store().not_in_history(tree, point))?;
        Ok(Self { keyspace: keyspace.of_kind(HandleKind::Snapshot), held: Arc::new(held) })
    }

    /// Returns the sequence number of the snapshot: see [`Snapshot::sequence`].
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.held.sequence()
    }

    /// Returns a snapshot of the same point in time that reads with `options`. As
    /// [`Keyspace::with_read_options`].
    #[must_use]
    pub fn with_read_options(&self, options: ReadOptions) -> Self {
        let keyspace = self.keyspace.with_read_options(options).of_kind(HandleKind::Snapshot);
        Self { keyspace, held: Arc::clone(&self.held) }
    }

    #[inline(always)]
    fn reader(&self) -> Reader<'_> {
        let snapshot = Some(self.held.read_point_in(self.keyspace.tree().id));
        Reader { snapshot, ..self.keyspace.reader() }
    }
}

read_methods!(KeyspaceSnapshot);
