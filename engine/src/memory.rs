//! Memory accounting.
//!
//! Every long-lived allocation that grows with the data holds a [`Charge`]: memtables, filters,
//! indexes, and tables being written, also those that only a reader keeps. The block cache and the
//! filter arena account for themselves. The limits come from the [pool](crate::memory_pool), and
//! change while a store is open.

pub(crate) mod in_pool;

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use sievedb_filter::FilterArena;

use self::in_pool::Allowed;
pub(crate) use self::in_pool::{Allowance, Uses};

use crate::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// Active memtables with their filters. The limit covers frozen ones too.
    Memtables,
    FrozenMemtables,
    /// Flushed memtables held by readers. No limit: only the reader can free them.
    PinnedMemtables,
    /// Filters of tables outside of their arena. The limit applies to both together: see
    /// [`filter_memory`](crate::table::filter_memory).
    Filters,
    /// Top indexes and properties of tables. They reduce the limit of the block cache.
    Indexes,
    /// Metadata of keyspaces and tables, and fixed buffers.
    Bookkeeping,
    /// Tables being written: buffers, and hashes for the filter.
    Writing,
}

impl MemoryUse {
    const COUNT: usize = 7;

    const ALL: [Self; Self::COUNT] = [
        Self::Memtables,
        Self::FrozenMemtables,
        Self::PinnedMemtables,
        Self::Filters,
        Self::Indexes,
        Self::Bookkeeping,
        Self::Writing,
    ];
}

/// Memory that a live table counts for.
pub(crate) const TABLE_BYTES: u64 = 4 << 10;

/// Number of memtables above which each is small. A search of a small memtable costs little more
/// than a filter probe, and all filters together would take 1/8 of the limit of memtables.
const MANY_MEMTABLES: u64 = 64;

/// Divisor of the limit of memtables: a memtable that takes at most this part is small.
const SMALL_SHARE: u64 = 64;

/// Returns the bytes that active memtables may take if all are small.
const fn many_small(limit: u64) -> u64 {
    limit / 16 * 11
}

/// Frees memory on another thread.
pub(crate) trait Freer: Debug + Send + Sync {
    /// Takes unneeded memory. Returns it if the calling thread must free it.
    fn take(&self, unneeded: Unneeded) -> Option<Unneeded>;

    /// Notifies the workers, except in a fork of this process.
    fn ring(&self);
}

/// Unused memory that takes long to free.
pub(crate) type Unneeded = Box<dyn Debug + Send + Sync>;

/// Bytes in use and their limits, by use.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    /// Signed: the subtraction of a move may be counted before its addition.
    bytes: [AtomicI64; MemoryUse::COUNT],
    limits: [AtomicU64; MemoryUse::COUNT],
    filter_arena: FilterArena,
    /// Current limits of the pool.
    allowed: Allowed,
    /// Bytes of memtables above which the block cache must shrink.
    memtable_bytes_fitted: AtomicU64,
    /// Bytes of filters that are about to be loaded.
    filter_bytes_expected: AtomicU64,
    /// Limit of filters at the last plan.
    filter_bytes_planned: AtomicU64,
    /// The limit of filters has changed since the last plan.
    filters_are_due: AtomicBool,
    /// Another store of the pool needs the memory of memtables.
    is_asked: AtomicBool,
    /// Reads made a memtable or a table due: they repeatedly apply many merge operands.
    has_long_merges: AtomicBool,
    /// Memtables with entries.
    memtables_begun: AtomicU64,
    live_tables: AtomicU64,
    /// Frees large memory in place of readers, in a store with workers.
    freer: OnceLock<Arc<dyn Freer>>,
    /// Bytes of active memtables up to which none is frozen, from the last check.
    freeze_put_off_to: AtomicU64,
}

/// Creates an account without limits.
impl Default for MemoryAccount {
    fn default() -> Self {
        Self {
            bytes: std::array::from_fn(|_| AtomicI64::new(0)),
            limits: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            filter_arena: FilterArena::new(),
            allowed: Allowed::default(),
            memtable_bytes_fitted: AtomicU64::new(0),
            filter_bytes_expected: AtomicU64::new(0),
            filter_bytes_planned: AtomicU64::new(u64::MAX),
            filters_are_due: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            has_long_merges: AtomicBool::new(false),
            memtables_begun: AtomicU64::new(0),
            live_tables: AtomicU64::new(0),
            freer: OnceLock::new(),
            freeze_put_off_to: AtomicU64::new(0),
        }
    }
}

impl MemoryAccount {
    pub(crate) fn bytes(&self, what: MemoryUse) -> u64 {
        self.bytes[what as usize].load(Relaxed).max(0) as u64
    }

    /// Returns the limit; `u64::MAX` for none. A charge is never refused: callers must check the
    /// limit.
    pub(crate) fn limit(&self, what: MemoryUse) -> u64 {
        self.limits[what as usize].load(Relaxed)
    }

    /// Sets a limit. Charges above a lowered limit stay until their owners release them.
    pub(crate) fn set_limit(&self, what: MemoryUse, bytes_max: u64) {
        self.limits[what as usize].store(bytes_max, Relaxed);
    }

    pub(crate) fn filter_arena(&self) -> &FilterArena {
        &self.filter_arena
    }

    /// Returns the bytes of active and frozen memtables of all keyspaces.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.bytes(MemoryUse::Memtables) + self.bytes(MemoryUse::FrozenMemtables)
    }

    /// Changes the bytes that a worker uses for writing.
    pub(crate) fn change_writing(&self, from: u64, to: u64) {
        let change = to as i64 - from as i64;
        let before = self.bytes[MemoryUse::Writing as usize].fetch_add(change, Relaxed);
        debug_assert!(before >= from as i64, "{from} of {before} bytes");
        debug_assert!(before + change >= to as i64, "a worker has {to} bytes");
    }

    pub(crate) fn memtable_bytes_left(&self) -> u64 {
        self.limit(MemoryUse::Memtables).saturating_sub(self.memtable_bytes())
    }

    /// Counts a memtable that gets its first entry. Returns the memtable size for which its filter
    /// is built: the remaining bytes divided by the number of memtables with entries, and 1/4 of
    /// that if there are [many](MANY_MEMTABLES). So the filters of 2,000 memtables take 1/64 of 5.6
    /// times the remaining bytes.
    pub(crate) fn begin_memtable(&self) -> u64 {
        let begun = self.memtables_begun.fetch_add(1, Relaxed) + 1;
        let share = self.memtable_bytes_left() / begun;
        if begun > MANY_MEMTABLES { share / 4 } else { share }
    }

    /// Returns `true` if an active memtable may have to be frozen. All of them take `active` bytes.
    pub(crate) fn is_freeze_due(&self, active: u64, limit: u64) -> bool {
        active > limit / 2 && active > self.freeze_put_off_to.load(Relaxed).min(many_small(limit))
    }

    /// Postpones freezing if the active memtables are small: the largest takes `largest` bytes, all
    /// take `active` bytes. Returns `true` if freezing was postponed.
    pub(crate) fn put_off_freeze(&self, largest: u64, active: u64, limit: u64) -> bool {
        let is_put_off = largest <= limit / SMALL_SHARE && active <= many_small(limit);
        // Until then the largest memtable cannot grow by more than that.
        let put_off_to = if is_put_off { active + limit / SMALL_SHARE } else { 0 };
        self.freeze_put_off_to.store(put_off_to, Relaxed);
        is_put_off
    }

    pub(crate) fn end_memtable(&self) {
        let begun = self.memtables_begun.fetch_sub(1, Relaxed);
        debug_assert!(begun > 0, "a memtable ends once");
    }

    pub(crate) fn live_tables(&self) -> u64 {
        self.live_tables.load(Relaxed)
    }

    /// Returns the number of tables that take 1/8 of the pool, divided by the number of its stores.
    pub(crate) fn tables_ample(&self) -> u64 {
        // Of memtables that an idle store keeps, 1/64 of the pool for all stores.
        self.idle_memtable_bytes().saturating_mul(8) / TABLE_BYTES
    }

    pub(crate) fn begin_table(&self) {
        self.live_tables.fetch_add(1, Relaxed);
    }

    pub(crate) fn end_table(&self) {
        let live = self.live_tables.fetch_sub(1, Relaxed);
        debug_assert!(live > 0, "a table ends once");
    }

    pub(crate) fn set_freer(&self, freer: Arc<dyn Freer>) {
        let _ = self.freer.set(freer);
    }

    /// Frees unused memory, on a worker if there are any.
    pub(crate) fn free(&self, unneeded: impl Debug + Send + Sync + 'static) {
        match self.freer.get() {
            Some(freer) => drop(freer.take(Box::new(unneeded))),
            None => drop(unneeded),
        }
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

/// Bytes charged to an account, released on drop.
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

    pub(crate) fn account(&self) -> &Arc<MemoryAccount> {
        &self.account
    }

    pub(crate) fn grow(&self, bytes: usize) {
        let (what, before) = Self::parts(self.state.fetch_add(bytes as u64, AcqRel));
        debug_assert!(
            before + (bytes as u64) < 1 << USE_SHIFT,
            "{bytes} bytes would change the use"
        );
        self.account.add(what, bytes as u64);
    }

    pub(crate) fn shrink(&self, bytes: usize) {
        let (what, before) = Self::parts(self.state.fetch_sub(bytes as u64, AcqRel));
        debug_assert!(before >= bytes as u64, "{bytes} of {before} bytes are released");
        self.account.subtract(what, bytes as u64);
    }

    /// Changes the use of the bytes.
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

    /// The number of each use maps back to it.
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
