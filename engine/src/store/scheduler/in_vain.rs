//! Quiet compactions that were given up, and which tables are not tried again.
//!
//! What they wrote was for nothing, and whoever flushes another keyspace as soon as one has begun
//! would cut off each of them. So a table of level 0 goes into so many in vain, and then waits for
//! a compaction that is due. A table that others are merged with is rewritten for one of level 0:
//! so this bounds the bytes, too.

use std::collections::BTreeMap;

use crate::compaction::choice::Compaction;

/// How often a table of level 0 may be an input in vain.
const TIMES_MAX: u32 = 2;

/// How often tables of level 0 were inputs of quiet compactions that were given up.
#[derive(Debug, Default)]
pub(super) struct InVain {
    /// By keyspace and by table.
    times: BTreeMap<u64, BTreeMap<u64, u32>>,
}

impl InVain {
    /// `compaction` of this keyspace was given up. Those of its tables that `is_there` does not
    /// know are forgotten.
    pub(super) fn note(
        &mut self,
        keyspace: u64,
        compaction: &Compaction,
        is_there: impl Fn(u64) -> bool,
    ) {
        let times = self.times.entry(keyspace).or_default();
        for id in level0(compaction) {
            *times.entry(id).or_default() += 1;
        }
        times.retain(|&id, _| is_there(id));
    }

    /// The keyspace is gone.
    pub(super) fn forget(&mut self, keyspace: u64) {
        self.times.remove(&keyspace);
    }

    /// Whether `compaction` of this keyspace may be begun.
    pub(super) fn may_begin(&self, keyspace: u64, compaction: &Compaction) -> bool {
        let times = self.times.get(&keyspace);
        let times = |id: u64| times.and_then(|times| times.get(&id)).copied().unwrap_or(0);
        level0(compaction).all(|id| times(id) < TIMES_MAX)
    }
}

/// The tables of level 0 that it compacts.
pub(super) fn level0(compaction: &Compaction) -> impl Iterator<Item = u64> {
    let of_level0 = compaction.inputs.iter().filter(|input| input.level == 0);
    of_level0.flat_map(|input| input.tables.iter().copied())
}
