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
        Self { durability: Durability::Disk, old_values: false }
    }
}

impl ChangesOptions {
    /// Returns the defaults.
    pub const fn new() -> Self {
        Self { durability: Durability::Disk, old_values: false }
    }

    /// Durability that a batch has when the stream returns it; default [`Durability::Disk`]. If
    /// necessary, the stream syncs the log once for all batches that are visible.
    ///
    /// With [`Durability::OsBuffer`] it writes them to the operating system only. A power cut may
    /// then take back batches that were returned, and their sequence numbers are given to other
    /// batches: use this for copies that do not outlive the process. [`Durability::Memory`] is the
    /// same here, because the stream reads files.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Looks up the value that each inserted, removed or merged key had before its batch; default
    /// `false`. Costs a lookup for each. Needs a
    /// [history](crate::KeyspaceOptions::keep_history) of the keyspace that reaches back as far:
    /// otherwise [`Change::old_value`](super::Change::old_value) is
    /// [`OldValue::Unknown`](super::OldValue::Unknown).
    pub const fn old_values(mut self, enabled: bool) -> Self {
        self.old_values = enabled;
        self
    }
}
