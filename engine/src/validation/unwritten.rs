//! The condition of a write that depends on one key.

use crate::{
    Result,
    commit::{KeySlot, Placed, Validate, Verdict},
    read::{
        tree::Tree,
        written::{ReadKey, ReadMark},
    },
};

/// Maximum number of checks that wait for a write in the slot of the key, before the writes in
/// flight are searched for the key itself. Bounds the wait: other keys of the slot may be written
/// continuously.
const WAITS_MAX: u32 = 2;

/// Holds if a key was not written since its read. Waits for writes in flight to the key first.
///
/// Requires no snapshot. May fail without a write if the tables of the keyspace have changed since
/// the read. The caller then reads the key again.
#[derive(Debug)]
pub(crate) struct Unwritten<'a> {
    tree: &'a Tree,
    key: ReadKey<'a>,
    slot: KeySlot,
    /// The version whose tables were read. While it is the current one, later writes are in
    /// memtables.
    version: u64,
    waits: u32,
}

impl<'a> Unwritten<'a> {
    /// Creates the condition for `key`, which was read at `mark`.
    pub(crate) fn new(tree: &'a Tree, key: &'a [u8], hash: u64, mark: ReadMark) -> Self {
        let key = ReadKey { key, hash, after: mark.sequence };
        let slot = KeySlot::new(tree.id, hash);
        Self { tree, key, slot, version: mark.version, waits: 0 }
    }

    /// Returns the sequence number of a write in flight that may have the key.
    fn in_flight(&mut self, placed: &Placed<'_>) -> Option<u64> {
        let last = placed.last_in_slot(self.slot);
        if last <= placed.visible() {
            return None;
        }
        if self.waits < WAITS_MAX {
            self.waits += 1;
            return Some(last);
        }
        placed.newest_in_flight(self.tree, self.key.key)
    }
}

impl Validate for Unwritten<'_> {
    fn check(&mut self, placed: &mut Placed<'_>) -> Result<Verdict> {
        if placed.last_in_slot(self.slot) <= self.key.after {
            return Ok(Verdict::Holds);
        }
        if let Some(last) = self.in_flight(placed) {
            return Ok(Verdict::Undecided(last));
        }
        let view = self.tree.view();
        let is_same = view.version.number() == self.version;
        let holds = is_same && !self.key.is_written_in_memtables(&view, placed.visible());
        Ok(if holds { Verdict::Holds } else { Verdict::Fails })
    }
}
