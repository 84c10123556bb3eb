//! Memory that workers free: the last reader of a memtable may be a lookup.

use std::{cell::Cell, sync::Arc};

use crate::{
    gate::Gate,
    memory::{Freer, Unneeded},
    store::scheduler::workers::Bell,
    sync::Mutex,
};

/// Memtables that wait for a worker, at most: all workers may be busy for minutes.
const WAITING_MAX: usize = 8;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as a worker: it frees memory at once.
pub(in crate::store) fn free_on_this_thread() {
    IS_WORKER.set(true);
}

/// Memory that waits for a worker to free it.
#[derive(Debug)]
pub(in crate::store) struct UnneededMemory {
    /// `None` without workers, and once they have ended.
    waiting: Mutex<Option<Vec<Unneeded>>>,
    bell: Arc<Bell>,
    /// A fork of this process has no workers, and one of the parent may have held the lock.
    gate: Gate,
}

impl UnneededMemory {
    /// Creates an empty list. Without workers the last user of memory frees it.
    pub(super) fn new(bell: &Arc<Bell>, has_workers: bool) -> Self {
        Self {
            waiting: Mutex::new(has_workers.then(Vec::new)),
            bell: Arc::clone(bell),
            gate: Gate::new(),
        }
    }

    /// Frees all waiting memory. Returns whether there was any.
    pub(in crate::store) fn free(&self) -> bool {
        let waiting = self.waiting.lock().as_mut().map(std::mem::take);
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }

    /// Frees all waiting memory. From now on the last user of memory frees it.
    pub(in crate::store) fn end(&self) {
        let waiting = self.waiting.lock().take();
        drop(waiting);
    }
}

impl Freer for UnneededMemory {
    fn take(&self, unneeded: Unneeded) -> Option<Unneeded> {
        if IS_WORKER.get() || self.gate.is_forked() {
            return Some(unneeded);
        }
        match &mut *self.waiting.lock() {
            Some(waiting) if waiting.len() < WAITING_MAX => waiting.push(unneeded),
            _ => return Some(unneeded),
        }
        self.bell.ring();
        None
    }

    fn ring(&self) {
        if !self.gate.is_forked() {
            self.bell.ring();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_waits_for_busy_workers_is_bounded() {
        let bell = Arc::<Bell>::default();
        let memory = UnneededMemory::new(&bell, true);
        let memtable = Arc::new(());
        for _ in 0..100 {
            drop(memory.take(Box::new(Arc::clone(&memtable))));
        }
        assert_eq!(Arc::strong_count(&memtable), 1 + WAITING_MAX);
        memory.free();
        assert_eq!(Arc::strong_count(&memtable), 1);
    }
}
