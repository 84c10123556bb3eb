//! Who holds how much memory.
//!
//! Everything that lives long and grows with the data takes a [`Charge`] for its bytes: memtables,
//! filters, indexes, and tables while they are written. So what is in memory is known without a
//! look at any of them, also for what only a reader still holds. The block cache counts for itself,
//! and keeps its own bound.

use std::sync::Arc;

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// Memtables with their filters.
    Memtables,
    /// Filters of tables.
    Filters,
    /// Top indexes and properties of tables.
    Indexes,
    /// Tables that are being written: buffers, and hashes for the filter to come.
    Writing,
}

/// Bytes in use, by what they are used for.
#[derive(Debug, Default)]
pub(crate) struct MemoryAccount {
    bytes: [AtomicU64; 4],
}

impl MemoryAccount {
    /// Bytes charged now.
    pub(crate) fn bytes(&self, what: MemoryUse) -> u64 {
        self.bytes[what as usize].load(Relaxed)
    }

    /// Charges `bytes` until the charge is dropped.
    pub(crate) fn charge(self: &Arc<Self>, what: MemoryUse, bytes: usize) -> Charge {
        let charge = Charge { account: Arc::clone(self), what, bytes: AtomicU64::new(0) };
        charge.grow(bytes);
        charge
    }
}

/// Bytes charged to an account; released by drop.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<MemoryAccount>,
    what: MemoryUse,
    bytes: AtomicU64,
}

impl Charge {
    /// Charges `bytes` more.
    pub(crate) fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.account.bytes[self.what as usize].fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Relaxed);
        self.account.bytes[self.what as usize].fetch_sub(bytes, Relaxed);
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
}
