//! Workers free memory that takes long to free: the last reader of a memtable may be a lookup.

use std::{cell::Cell, process, sync::Arc};

use crate::{
    memory::{Freer, Unneeded},
    store::background::Bell,
    sync::Mutex,
};

/// The most memtables that wait for a worker: all workers may be busy for minutes.
const WAITING_MAX: usize = 8;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Lets this thread free at once what it is the last to use.
pub(crate) fn free_on_this_thread() {
    IS_WORKER.set(true);
}

/// Memory that workers are to free.
#[derive(Debug)]
pub(crate) struct UnneededMemory {
    /// `None` without workers, and once they have ended.
    waiting: Mutex<Option<Vec<Unneeded>>>,
    bell: Arc<Bell>,
    /// A fork of this process has no workers, and one of the parent may have held the lock.
    process_id: u32,
}

impl UnneededMemory {
    /// Memory that is freed when the bell rings, or at once by its last user if there are no workers.
    pub(crate) fn new(bell: &Arc<Bell>, has_workers: bool) -> Self {
        Self {
            waiting: Mutex::new(has_workers.then(Vec::new)),
            bell: Arc::clone(bell),
            process_id: process::id(),
        }
    }

    /// Frees what waits.
    pub(crate) fn free(&self) {
        let waiting = self.waiting.lock().as_mut().map(std::mem::take);
        drop(waiting);
    }

    /// Frees what waits. From now on each thread frees what it is the last to use.
    pub(crate) fn end(&self) {
        let waiting = self.waiting.lock().take();
        drop(waiting);
    }
}

impl Freer for UnneededMemory {
    fn take(&self, unneeded: Unneeded) -> Option<Unneeded> {
        if IS_WORKER.get() || process::id() != self.process_id {
            return Some(unneeded);
        }
        match &mut *self.waiting.lock() {
            Some(waiting) if waiting.len() < WAITING_MAX => waiting.push(unneeded),
            _ => return Some(unneeded),
        }
        self.bell.ring();
        None
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
