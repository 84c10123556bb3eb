//! Options of a change stream.

use crate::Durability;

/// Options of [`Db::changes_with`](crate::Db::changes_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "options do nothing until `Db::changes_with`"]
pub struct ChangesOptions {
    pub(super) durability: Durability,
    pub(super) old_values: bool,
}

impl Default for ChangesOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ChangesOptions {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self { durability: Durability::Disk, old_values: false }
    }

    /// Minimum durability of the batches that the stream returns; default [`Durability::Disk`]. If
    /// necessary, the stream syncs the log, once for all visible batches.
    ///
    /// With [`Durability::OsBuffer`] the stream passes batches to the operating system only. A
    /// power cut may then lose returned batches, and reuse their sequence numbers for other
    /// batches. Use it for copies that do not outlive the process. [`Durability::Memory`] has the
    /// same effect, because the stream reads files.
    ///
    /// Has no effect on [followers](crate::Options::follow), which do not know what the writer has
    /// synced: a follower always reads as with [`Durability::OsBuffer`], also writes whose sync
    /// fails later.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Looks up the value that each inserted, removed or merged key had before its batch; default
    /// `false`. Costs a lookup for each key. Requires a
    /// [history](crate::KeyspaceOptions::keep_history) of the keyspace that includes the batch:
    /// otherwise [`Change::old_value`](super::Change::old_value) is
    /// [`OldValue::Unknown`](super::OldValue::Unknown).
    ///
    /// A lookup that fails ends the stream before its batch. A new stream at the same position
    /// fails again, unless it looks up no old values.
    pub const fn old_values(mut self, enabled: bool) -> Self {
        self.old_values = enabled;
        self
    }
}
