//! Merges small tables while the tables of a store take too much of its memory.
//!
//! From [`tables_ample`](MemoryAccount::tables_ample) tables on the store is crowded. Then merges
//! reduce the number of tables, the one with the smallest
//! [price](crate::compaction::crowded::Price) of all keyspaces first. From three times as many on,
//! writes are delayed while there is such a merge, by up to [`DELAY_MAX`] at six times as many.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use super::{Job, State};
use crate::{
    compaction::{
        choice::Compaction,
        crowded::{Price, REWRITE_MAX, rewrite_max},
    },
    memory::MemoryAccount,
    read::changed_trees::TreeIds,
    read::tree::Tree,
    store::Store,
    sync::atomic::Ordering::Relaxed,
};

/// Multiple of the ample tables from which on writes are delayed.
const SHARES_SLOW: f64 = 3.0;
/// Multiple with the longest delay.
const SHARES_MAX: f64 = 6.0;
/// Longest delay of a write.
pub(in crate::store) const DELAY_MAX: Duration = Duration::from_millis(2);

/// Largest merge that goes before a flush, in bytes. One merge may follow each flush: otherwise
/// flushes of a steady writer would let none begin.
pub(super) const MERGE_BYTES_BEFORE_FLUSH: u64 = 1 << 20;

/// Keyspaces by the price of their next merge.
#[derive(Debug, Default)]
pub(in crate::store) struct ByPrice {
    /// Keyspaces that have changed since their price was determined.
    changed: TreeIds,
    prices: BTreeMap<u64, Price>,
    cheapest: BTreeSet<(Price, u64)>,
}

impl ByPrice {
    /// Notes that these keyspaces have changed.
    pub(in crate::store) fn note(&mut self, changed: impl IntoIterator<Item = u64>) {
        self.changed.add(changed);
    }

    /// Determines the prices of all keyspaces that have changed.
    fn update(&mut self, price_of: impl Fn(u64) -> Option<Price>) {
        while let Some(id) = self.changed.first_from(0) {
            self.changed.remove(id);
            self.set(id, price_of(id));
        }
    }

    fn set(&mut self, id: u64, price: Option<Price>) {
        if let Some(before) = self.prices.remove(&id) {
            self.cheapest.remove(&(before, id));
        }
        if let Some(price) = price {
            self.prices.insert(id, price);
            self.cheapest.insert((price, id));
        }
    }

    /// Returns the keyspaces with a merge that `rewrite_max` permits, the smallest price first.
    fn permitted(&self, rewrite_max: u64) -> impl Iterator<Item = u64> {
        let all = self.cheapest.iter();
        all.take_while(move |(price, _)| price.rewrite_max <= rewrite_max).map(|&(_, id)| id)
    }
}

/// Returns how many bytes may be rewritten to have fewer tables, for each byte of newer runs.
fn rewrite_max_of(memory: &MemoryAccount) -> u64 {
    rewrite_max(memory.live_tables(), memory.tables_ample())
}

/// Returns the delay of a write while merges make the tables fewer. Pure.
fn delay(tables: u64, ample: u64) -> Duration {
    let shares = tables as f64 / ample.max(1) as f64;
    let part = (shares - SHARES_SLOW) / (SHARES_MAX - SHARES_SLOW);
    DELAY_MAX.mul_f64(part.clamp(0.0, 1.0))
}

impl Store {
    /// Returns the delay of a write while merges make the tables fewer.
    pub(in crate::store) fn tables_delay(&self) -> Duration {
        let memory = &self.tables.memory;
        delay(memory.live_tables(), memory.tables_ample())
    }

    /// Claims the cheapest merge that makes the tables of a crowded store fewer, unless it reads
    /// more than `bytes_max`.
    pub(super) fn claim_crowded(&self, state: &mut State, bytes_max: u64) -> Option<Job> {
        let may_compact = state.full_disk.may_compact(self.options.clock.now());
        let merge = self.cheapest_merge(state).filter(|_| may_compact);
        let merge = merge.filter(|(tree, it)| !self.has_no_space(state, tree, it));
        self.scheduler.merges_tables.store(merge.is_some(), Relaxed);
        let (tree, compaction) = merge.filter(|(tree, it)| {
            it.input_bytes <= bytes_max && !self.keeps_workers(state, tree, it)
        })?;
        Some(self.claim_merge(state, tree, compaction))
    }

    /// Returns whether a merge is due that makes the tables of a crowded store fewer.
    pub(super) fn has_crowded(&self, state: &mut State) -> bool {
        self.cheapest_merge(state).is_some()
    }

    fn cheapest_merge(&self, state: &mut State) -> Option<(Arc<Tree>, Compaction)> {
        let rewrite_max = rewrite_max_of(&self.tables.memory);
        if rewrite_max == 0 || !self.options.background_rewrites || state.pauses > 0 {
            return None;
        }
        let mut by_price = mem::take(&mut state.due.crowded);
        by_price.update(|id| {
            let merge = self.merge_of(state, &*self.tree_of_id(id)?, REWRITE_MAX);
            merge.map(|(price, _)| price)
        });
        let mut dearer = Vec::new();
        let found = by_price.permitted(rewrite_max).find_map(|id| {
            let tree = self.tree_of_id(id);
            let merge = tree.as_ref().and_then(|tree| self.merge_of(state, tree, rewrite_max));
            if merge.is_none() {
                dearer.push(id);
            }
            Some((tree?, merge?.1))
        });
        // A running compaction is in the way, or the keyspace is gone. Its end is a change.
        dearer.into_iter().for_each(|id| by_price.set(id, None));
        state.due.crowded = by_price;
        found
    }

    /// Returns the cheapest merge of `tree` beside those that are running.
    fn merge_of(
        &self,
        state: &State,
        tree: &Tree,
        rewrite_max: u64,
    ) -> Option<(Price, Compaction)> {
        // A request for a range needs the runs that it saw.
        if state.requests.has(tree.id) || state.ingesting.contains(&tree.id) {
            return None;
        }
        self.choose_crowded(tree, &state.running_in(tree), rewrite_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_delayed_from_three_shares_on() {
        for (tables, want) in [(0, 0), (300, 0), (450, 1_000), (600, 2_000), (9_999, 2_000)] {
            assert_eq!(delay(tables, 100), Duration::from_micros(want), "{tables} tables");
        }
        assert_eq!(delay(1_000_000, u64::MAX), Duration::ZERO, "no budget");
    }

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn a_write_without_a_delay_is_no_stall() {
        use crate::{Options, fs::MemoryFs};

        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
        let db = options.open("db").expect("a new store");
        db.store().scheduler.merges_tables.store(true, Relaxed);
        assert_eq!(db.store().tables_delay(), Duration::ZERO);
        db.insert("key", "value").expect("there is room");
        assert_eq!(db.stats().writes.stalls, 0);
    }

    /// No merge is found beside a running one, nor beside a request to compact the keyspace. Their
    /// ends may not change the keyspace.
    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn a_keyspace_is_priced_again_without_a_change() {
        use crate::{Options, fs::MemoryFs, iter::bounds::KeyBounds};

        let options = Options::new().fs(Arc::new(MemoryFs::with_seed(1))).worker_threads(0);
        let db = options.open("db").expect("a new store");
        for _ in 0..2 {
            db.insert("key", "value").expect("there is room");
            db.flush().expect("there is room");
        }
        let store = db.store();
        let tree = store.versions.trees().get("default").cloned().expect("it is always there");
        let merge = || store.choose_crowded(&tree, &[], REWRITE_MAX);
        let (price, compaction) = merge().expect("two small runs");
        let lock = || store.scheduler.state.lock();
        let find_none = || {
            let mut state = lock();
            store.note_changes(&mut state);
            state.due.crowded.update(|_| None);
        };
        let found = || {
            let mut state = lock();
            state.due.crowded.update(|_| Some(price));
            state.due.crowded.permitted(REWRITE_MAX).collect::<Vec<_>>()
        };
        lock().claim(&tree, &compaction);
        find_none();
        assert_eq!(found(), [0; 0]);
        lock().end_claim(&tree, &compaction);
        assert_eq!(found(), [tree.id], "the merge failed");
        let request =
            || store.scheduler.request_range(&tree, &KeyBounds::ALL, || 0).expect("no pause");
        let number = request();
        find_none();
        store.scheduler.withdraw_range(&tree, number);
        assert_eq!(found(), [tree.id], "the request was withdrawn");
        request();
        find_none();
        store.claim();
        assert!(lock().requests.is_empty());
        assert_eq!(found(), [tree.id], "the request was done");
    }

    #[test]
    fn the_cheapest_merge_of_all_keyspaces_comes_first() {
        let price = |rewrite_max, bytes_per_table| Price { rewrite_max, bytes_per_table };
        let mut by_price = ByPrice::default();
        by_price.note([1, 2, 3, 4]);
        by_price.update(|id| match id {
            1 => Some(price(4, 10)),
            2 => Some(price(1, 500)),
            3 => Some(price(1, 400)),
            _ => None,
        });
        let permitted = |by_price: &ByPrice, max| by_price.permitted(max).collect::<Vec<_>>();
        assert_eq!(permitted(&by_price, 8), [3, 2, 1]);
        assert_eq!(permitted(&by_price, 2), [3, 2]);
        by_price.note([3, 4]);
        by_price.update(|id| Some(price(1, if id == 4 { 1 } else { 900 })));
        assert_eq!(permitted(&by_price, 1), [4, 2, 3]);
        by_price.set(4, None);
        by_price.update(|_| panic!("nothing has changed"));
        assert_eq!(permitted(&by_price, 1), [2, 3]);
    }
}
