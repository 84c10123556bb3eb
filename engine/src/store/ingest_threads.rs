//! Divides the threads that write tables among the bulk loads of a store.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Threads of one ingest.
const THREADS_MAX: usize = 64;
/// All threads together take at most this part of the memory budget, beyond one for each ingest.
const THREADS_IN_BUDGET: u64 = 2;
/// Shares that a thread takes: one for the batch, and one for the table.
const SHARES_PER_THREAD: u64 = 2;

/// The threads of an ingest, until it is dropped.
#[derive(Debug)]
pub(super) struct IngestThreads {
    own: usize,
    /// Threads of all ingests of the store.
    all: Arc<AtomicUsize>,
}

/// Returns how many threads fit into a budget of `budget_bytes` bytes with shares of `share_bytes`.
pub(super) fn threads_in(budget_bytes: u64, share_bytes: u64) -> usize {
    let of_thread = SHARES_PER_THREAD * share_bytes.max(1);
    usize::try_from(budget_bytes / THREADS_IN_BUDGET / of_thread).unwrap_or(usize::MAX)
}

impl IngestThreads {
    /// Takes the one thread that an ingest always has.
    pub(super) fn one(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Relaxed);
        Self { own: 1, all: Arc::clone(all) }
    }

    pub(super) const fn get(&self) -> usize {
        self.own
    }

    /// Takes up to `wanted` threads instead, of the `fit` that other ingests have not taken.
    pub(super) fn set(&mut self, wanted: usize, fit: usize) {
        let own = self.own;
        let granted = |all: usize| {
            let free = fit.saturating_sub(all - own);
            wanted.clamp(1, free.clamp(1, THREADS_MAX))
        };
        let set = self.all.fetch_update(Relaxed, Relaxed, |all| Some(all - own + granted(all)));
        let (Ok(before) | Err(before)) = set;
        self.own = granted(before);
    }
}

impl Drop for IngestThreads {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Relaxed);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn ingests_share_the_threads_that_fit() {
        assert_eq!(threads_in(1 << 30, 64 << 20), 4);
        assert_eq!(threads_in(8 << 20, 0), 2 << 20);
        let all = Arc::default();
        let mut ingests: Vec<_> = (0..3).map(|_| IngestThreads::one(&all)).collect();
        let set = |ingests: &mut Vec<IngestThreads>, at: usize, wanted, fit| {
            ingests[at].set(wanted, fit);
            let threads: Vec<_> = ingests.iter().map(IngestThreads::get).collect();
            assert_eq!(all.load(Relaxed), threads.iter().sum::<usize>());
            threads
        };
        assert_eq!(set(&mut ingests, 0, 8, 6), [4, 1, 1]);
        assert_eq!(set(&mut ingests, 1, 8, 6), [4, 1, 1], "none is left");
        assert_eq!(set(&mut ingests, 0, 2, 6), [2, 1, 1]);
        assert_eq!(set(&mut ingests, 1, 8, 6), [2, 3, 1]);
        assert_eq!(set(&mut ingests, 2, 0, 1), [2, 3, 1], "one at least");
        ingests.pop();
        assert_eq!(set(&mut ingests, 1, 800, 1000), [2, 64]);
        drop(ingests);
        assert_eq!(all.load(Relaxed), 0);
    }
}
