//! Who holds how much memory, and how much it may be.
//!
//! Everything that lives long and grows with the data takes a [`Charge`] for its bytes: memtables,
//! filters, indexes, and tables while they are written. So what is in memory is known without a
//! look at any of them, also for what only a reader still holds. The block cache counts for itself.
//! The limits are those of [`memory_budget`](crate::memory_budget), and change while a store is open.

use std::sync::Arc;

use crate::{
    memory_budget::MemoryParts,
    sync::atomic::{
        AtomicI64, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// Active memtables with their filters. The limit is that of all memtables but pinned ones.
    Memtables,
    /// Memtables that wait for their flush, or are being flushed.
    FrozenMemtables,
    /// Memtables that are in tables already, and that readers have not let go of. No limit: nobody but
    /// the reader can free them.
    PinnedMemtables,
    /// Filters of tables.
    Filters,
    /// Top indexes and properties of tables. The limit is the block cache's: it gives way to them.
    Indexes,
    /// Tables that are being written: buffers, and hashes for the filter to come.
    Writing,
}

impl MemoryUse {
    const COUNT: usize = 6;

    const ALL: [Self; Self::COUNT] = [
        Self::Memtables,
        Self::FrozenMemtables,
        Self::PinnedMemtables,
        Self::Filters,
        Self::Indexes,
        Self::Writing,
    ];
}

/// Bytes in use and their limits, by what they are used for.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    /// Signed: of an addition and a subtraction at once, the second may be counted first.
    bytes: [AtomicI64; MemoryUse::COUNT],
    limits: [AtomicU64; MemoryUse::COUNT],
}

/// Without limits.
impl Default for MemoryAccount {
    fn default() -> Self {
        Self {
            bytes: std::array::from_fn(|_| AtomicI64::new(0)),
            limits: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
        }
    }
}

impl MemoryAccount {
    /// Bytes charged now.
    pub(crate) fn bytes(&self, what: MemoryUse) -> u64 {
        self.bytes[what as usize].load(Relaxed).max(0) as u64
    }

    /// The most bytes that may be charged; `u64::MAX` if there is no limit. Whoever charges must ask:
    /// a charge is never refused.
    pub(crate) fn limit(&self, what: MemoryUse) -> u64 {
        self.limits[what as usize].load(Relaxed)
    }

    /// Changes a limit. What is charged beyond it stays until its owner gives it up.
    pub(crate) fn set_limit(&self, what: MemoryUse, bytes_max: u64) {
        self.limits[what as usize].store(bytes_max, Relaxed);
    }

    /// Sets the limits to the parts of a budget.
    pub(crate) fn set_limits(&self, parts: &MemoryParts) {
        self.set_limit(MemoryUse::Memtables, parts.memtables);
        self.set_limit(MemoryUse::FrozenMemtables, parts.memtables);
        self.set_limit(MemoryUse::Filters, parts.filters);
        self.set_limit(MemoryUse::Indexes, parts.block_cache);
        self.set_limit(MemoryUse::Writing, parts.writing);
    }

    /// Charges `bytes` until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, what: MemoryUse, bytes: usize) -> Charge {
        let state = AtomicU64::new(Charge::state(what, 0));
        let charge = Charge { account: Arc::clone(self), state };
        charge.grow(bytes);
        charge
    }

    fn add(&self, what: MemoryUse, bytes: u64) {
        self.bytes[what as usize].fetch_add(bytes as i64, Relaxed);
    }

    fn subtract(&self, what: MemoryUse, bytes: u64) {
        self.bytes[what as usize].fetch_sub(bytes as i64, Relaxed);
    }
}

/// Bytes charged to an account; released by drop.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<MemoryAccount>,
    /// The use above [`USE_SHIFT`], the bytes below: a charge may grow while its use changes.
    state: AtomicU64,
}

/// Bits of [`Charge::state`] that count bytes: no machine has more.
const USE_SHIFT: u32 = 56;

impl Charge {
    const fn state(what: MemoryUse, bytes: u64) -> u64 {
        (what as u64) << USE_SHIFT | bytes
    }

    fn parts(state: u64) -> (MemoryUse, u64) {
        let what = MemoryUse::ALL[(state >> USE_SHIFT) as usize];
        (what, state & ((1 << USE_SHIFT) - 1))
    }

    /// Charges `bytes` more.
    pub(crate) fn grow(&self, bytes: usize) {
        let (what, _) = Self::parts(self.state.fetch_add(bytes as u64, AcqRel));
        self.account.add(what, bytes as u64);
    }

    /// The bytes are used for `what` from now on.
    pub(crate) fn move_to(&self, what: MemoryUse) {
        let moved = |state| Some(Self::state(what, Self::parts(state).1));
        let before = self.state.fetch_update(AcqRel, Relaxed, moved);
        let (before, bytes) = Self::parts(before.expect("it always moves"));
        self.account.add(what, bytes);
        self.account.subtract(before, bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (what, bytes) = Self::parts(self.state.load(Relaxed));
        self.account.subtract(what, bytes);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_and_are_released() {
        let account = Arc::<MemoryAccount>::default();
        let filter = account.charge(MemoryUse::Filters, 64);
        let memtable = account.charge(MemoryUse::Memtables, 100);
        memtable.grow(28);
        assert_eq!(account.bytes(MemoryUse::Filters), 64);
        assert_eq!(account.bytes(MemoryUse::Memtables), 128);
        drop(memtable);
        assert_eq!(account.bytes(MemoryUse::Memtables), 0);
        assert_eq!(account.bytes(MemoryUse::Filters), 64);
        drop(filter);
        assert_eq!(account.bytes(MemoryUse::Filters), 0);
    }

    /// Each use there is: its number finds it again.
    #[test]
    fn charges_change_their_use() {
        let account = Arc::<MemoryAccount>::default();
        let charge = account.charge(MemoryUse::Writing, 5);
        let mut before = MemoryUse::Writing;
        for (grown, what) in (1..).zip(MemoryUse::ALL) {
            charge.move_to(what);
            charge.grow(1);
            if before != what {
                assert_eq!(account.bytes(before), 0, "{before:?}");
            }
            assert_eq!(account.bytes(what), 5 + grown, "{what:?}");
            before = what;
        }
        drop(charge);
        assert!(MemoryUse::ALL.iter().all(|&what| account.bytes(what) == 0));
    }

    #[test]
    fn limits_are_what_was_set() {
        let account = MemoryAccount::default();
        assert_eq!(account.limit(MemoryUse::Filters), u64::MAX);
        account.set_limit(MemoryUse::Filters, 7);
        assert_eq!(account.limit(MemoryUse::Filters), 7);
        assert_eq!(account.limit(MemoryUse::Writing), u64::MAX);
    }
}
