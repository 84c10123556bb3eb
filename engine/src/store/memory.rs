//! Room for writes in memtables, and changes of the memory budget.

use std::{sync::Arc, time::Duration};

use super::Store;
use crate::{
    Error, Result,
    memory::MemoryUse,
    memory_budget::MemoryBudget,
    read::tree::Tree,
    store::writer::{
        room_turn::RoomTurn,
        stall::Awaited,
        throttle::{Room, room},
    },
};

/// Result of freezing memtables for a write that had no room.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrozenForRoom {
    pub(super) has_room: bool,
    /// A memtable was frozen: a flush is due.
    pub(super) froze: bool,
}

impl Store {
    /// Returns whether memtables have room for a write that takes `bytes` of their memory.
    ///
    /// # Errors
    ///
    /// [`Error::WriteTooLarge`] if they never have room.
    pub(super) fn room(&self, bytes: u64) -> Result<Room> {
        let memory = &self.tables.memory;
        if bytes == 0 {
            // A change of keyspaces.
            return Ok(Room::Delay(Duration::ZERO));
        }
        let room = || room(bytes, memory.memtable_bytes(), memory.memtable_limit_for(bytes));
        let mut of_write = room();
        if of_write != Room::Delay(Duration::ZERO) && memory.is_memtable_ceiling_lowered() {
            self.tables.cache_room.restore_memtables();
            of_write = room();
        }
        match of_write {
            Room::Never(bytes_max) => Err(Error::WriteTooLarge { bytes, bytes_max }),
            room => Ok(room),
        }
    }

    /// Returns the default limit of a transaction. Several transactions may be open, and the budget
    /// has no part for them.
    pub(crate) fn transaction_bytes_max(&self) -> u64 {
        self.tables.memory.memtable_ceiling() / 4
    }

    /// Returns whether a write of `bytes` bytes must wait for a flush.
    fn waits_for_room(&self, bytes: u64) -> bool {
        self.room(bytes).is_ok_and(|room| room == Room::Wait)
    }

    /// Freezes the largest memtables until active ones take at most half of the limit: the other
    /// half is for flushes. While the largest is small, active ones may take 11/16. Returns whether
    /// any was frozen.
    ///
    /// In a pool, requests the same of the store with the largest memtables.
    ///
    /// The caller holds the placement lock.
    pub(super) fn freeze_largest(&self) -> bool {
        let froze = self.freeze_own_largest();
        if froze {
            self.tables.cache_room.ask_largest();
        }
        froze
    }

    fn freeze_own_largest(&self) -> bool {
        if self.options.read_only {
            // No worker would flush it.
            return false;
        }
        let memory = &self.tables.memory;
        let mut froze = false;
        loop {
            let (active, limit) =
                (memory.bytes(MemoryUse::Memtables), memory.limit(MemoryUse::Memtables));
            if !memory.is_freeze_due(active, limit) {
                return froze;
            }
            let begun = self.begun_memtables().into_iter();
            let Some((bytes, largest)) = begun.max_by_key(|(bytes, _)| *bytes) else {
                return froze;
            };
            if memory.put_off_freeze(bytes as u64, active, limit) {
                return froze;
            }
            if !largest.freeze() {
                return froze;
            }
            froze = true;
            debug_assert!(
                largest.view_seldom().active.first_sequence().is_none(),
                "frozen under the lock"
            );
            self.tables.counters.local().memtables.frozen_at_limit.add(1);
        }
    }

    /// Freezes the largest memtable if another store of the pool requested its memory.
    pub(super) fn freeze_asked(&self) {
        if !self.tables.memory.is_asked() || self.versions.check_writable().is_err() {
            return;
        }
        let _placement = self.writer.placement();
        if !self.tables.memory.take_asked() {
            return;
        }
        self.freeze_own_largest();
        let largest = self.begun_memtables().into_iter().max_by_key(|(bytes, _)| *bytes);
        if let Some((_, largest)) = largest
            && largest.freeze()
        {
            self.tables.counters.local().memtables.frozen_at_limit.add(1);
        }
    }

    /// Returns the keyspaces whose active memtable has entries, with its bytes.
    pub(super) fn begun_memtables(&self) -> Vec<(usize, Arc<Tree>)> {
        let trees = self.versions.trees();
        let begun = trees.values().filter_map(|tree| {
            let active = &tree.view_seldom().active;
            active.first_sequence()?;
            Some((active.memtable.memory_bytes(), Arc::clone(tree)))
        });
        begun.collect()
    }

    /// Waits until memtables have room for a write of `bytes` bytes, in its turn, which the write
    /// keeps until it is placed. Without a turn at return, another write had it, and this one must
    /// check for room again.
    ///
    /// # Errors
    ///
    /// As [`room`](Self::room), and errors of flushes.
    pub(super) fn wait_for_room<'a>(
        &'a self,
        turn: &mut Option<RoomTurn<'a>>,
        bytes: u64,
    ) -> Result<()> {
        self.tables.counters.local().memtables.room_waits.add(1);
        if turn.is_none() {
            *turn = self.writer.room_turns().begin();
            if turn.is_none() {
                return Ok(());
            }
        }
        while !self.freeze_for_room(bytes)?.has_room {
            if self.options.worker_threads == 0 {
                // No worker retries after a full disk.
                self.scheduler.retry();
            }
            self.scheduler.wake();
            let may_fit = || !self.waits_for_room(bytes);
            self.wait_for(Awaited::Flushes, |_| may_fit() || self.frees_no_memtable())?;
        }
        Ok(())
    }

    /// Freezes memtables if there is no room for a write of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// As [`room`](Self::room).
    pub(super) fn freeze_for_room(&self, bytes: u64) -> Result<FrozenForRoom> {
        let _placement = self.writer.placement();
        if self.room(bytes)? != Room::Wait {
            return Ok(FrozenForRoom { has_room: true, froze: false });
        }
        if self.freeze_largest() {
            return Ok(FrozenForRoom { has_room: false, froze: true });
        }
        if !self.frees_no_memtable() {
            return Ok(FrozenForRoom { has_room: false, froze: false });
        }
        // A large write requires the half of active memtables, too.
        let frozen = self.versions.trees().values().filter(|tree| tree.freeze()).count();
        self.tables.counters.local().memtables.frozen_at_limit.add(frozen as u64);
        debug_assert!(
            frozen > 0 || !self.frees_no_memtable() || !self.waits_for_room(bytes),
            "no flush makes room for {bytes} bytes"
        );
        Ok(FrozenForRoom { has_room: false, froze: frozen > 0 })
    }

    /// Returns whether no flush in flight or due frees memory. Memtables of a dropped keyspace stay
    /// until the manifest has the drop.
    fn frees_no_memtable(&self) -> bool {
        self.tables.memory.bytes(MemoryUse::FrozenMemtables) == 0 && !self.versions.is_behind()
    }

    /// Changes the memory budget. Evicts blocks and drops filter columns that exceed it. Memtables
    /// follow by flushes.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetTooSmall`]; the budget is unchanged.
    pub(crate) fn change_memory_budget(
        &self,
        change: impl FnOnce(&mut MemoryBudget),
    ) -> Result<()> {
        let mut budget = self.memory_budget.lock();
        let mut changed = *budget;
        change(&mut changed);
        let filter_bytes_max = self.tables.cache_room.change(changed)?;
        *budget = changed;
        self.tables.memory.begin_filter_plan();
        self.filters.set_bytes_max(self, filter_bytes_max);
        drop(budget);
        {
            let _placement = self.writer.placement();
            self.freeze_largest();
        }
        self.scheduler.wake();
        self.run_inline();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Durability, Options,
        fs::{Call, Fault, FaultFs, MemoryFs, Times},
        tests::ENOSPC,
    };

    #[test]
    fn freezes_at_the_limit_and_waits_for_room_are_counted() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.memory_budget(8 << 20).open("db").expect("a new store");
        db.insert("a", "1").expect("there is room");
        let counts = |db: &crate::Db| {
            let moves = db.stats().moves;
            (moves.memtables_frozen_at_limit, moves.memtable_room_waits)
        };
        assert_eq!(counts(&db), (0, 0));
        // Of a limit of 2 MiB, half is for active memtables.
        db.insert("b", vec![7; 1_200 << 10]).expect("there is room");
        assert_eq!(counts(&db), (0, 0));
        db.insert("c", vec![7; 1_200 << 10]).expect("there is room after a flush");
        assert_eq!(counts(&db), (1, 1));
        assert!(db.stats().writes.stalls >= 1);
    }

    /// Otherwise its memory would count twice, without end in an idle store.
    #[test]
    fn a_long_write_to_memory_does_not_stay_queued() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let options = options.durability(Durability::Memory).memory_budget(8 << 20);
        let db = options.open("db").expect("a new store");
        let queued = || db.store().writer.placement().pending_bytes();
        db.insert("a", "1").expect("there is room");
        assert!(queued() > 0);
        // Of a limit of 2 MiB, a 64th may be queued.
        for key in ["b", "c"] {
            db.insert(key, vec![7; 40 << 10]).expect("there is room");
            assert_eq!(queued(), 0);
        }
        db.insert("d", vec![7; 10 << 10]).expect("there is room");
        assert!(queued() > 0);
    }

    /// No write waits, is delayed or fails because the block cache had the memory.
    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn writes_that_a_lowered_limit_would_delay_restore_it() {
        let cases = [
            ("more than the limit", 1, 2 << 20),
            ("more than is left", 1, 600 << 10),
            ("a batch", 5, 100 << 10),
        ];
        for (name, entries, value_bytes) in cases {
            let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
            let db = options.memory_budget(16 << 20).open("db").expect("a new store");
            let store = db.store();
            let limit = || db.stats().memory.memtable_bytes_max;
            assert_eq!(limit(), 4 << 20);
            store.tables.cache_room.lower_memtables();
            let mut numbers = 0_u64..;
            while store.tables.memory.memtable_bytes() < 450 << 10 {
                let number = numbers.next().expect("there are more");
                db.insert(number.to_be_bytes(), vec![7; 20 << 10]).expect("there is room");
            }
            assert_eq!(limit(), 1 << 20, "{name}");
            let mut batch = db.batch();
            for n in 0_u32..entries {
                batch.insert(&db, n.to_be_bytes(), vec![7; value_bytes]).expect("not too large");
            }
            batch.commit(Durability::OsBuffer).expect("there is room");
            db.insert("a", "1").expect("there is room");
            assert_eq!(limit(), 4 << 20, "{name}");
            let stats = db.stats();
            assert_eq!(stats.moves.memtable_limit_restored, 1, "{name}");
            assert_eq!((stats.moves.memtable_room_waits, stats.writes.stalls), (0, 0), "{name}");
        }
    }

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn the_limit_of_transactions_does_not_follow_that_of_memtables() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.memory_budget(16 << 20).open("db").expect("a new store");
        let limit = || {
            let mut transaction = db.begin();
            match transaction.insert(&db, "a", vec![7; 4 << 20]) {
                Err(Error::TransactionTooLarge { bytes_max, .. }) => bytes_max,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(limit(), 1 << 20);
        db.store().tables.cache_room.lower_memtables();
        db.insert("b", vec![7; 450 << 10]).expect("there is room");
        assert_eq!(db.stats().memory.memtable_bytes_max, 1 << 20);
        assert_eq!(limit(), 1 << 20);
        let write =
            |transaction: &mut crate::Transaction| transaction.insert(&db, "a", vec![7; 900 << 10]);
        db.transaction(write).expect("there is room");
        db.set_memory_budget(32 << 20).expect("a valid budget");
        assert_eq!(limit(), 2 << 20);
    }

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn the_block_cache_yields_to_a_transaction() {
        let options = Options::new().fs(Arc::new(MemoryFs::new())).worker_threads(0);
        let db = options.memory_budget(64 << 20).open("db").expect("a new store");
        let cache_max = || db.stats().memory.block_cache_bytes_max;
        let before = cache_max();
        let mut transaction = db.begin();
        transaction.insert(&db, "a", vec![7; 3 << 20]).expect("there is room");
        let during = cache_max();
        assert!(during <= before - (2 << 20), "{during} of {before} bytes");
        drop(transaction);
    }

    #[test]
    fn n8_a_failed_write_gives_its_reservation_back_at_once() {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::new())));
        let options = Options::new().fs(Arc::clone(&fs) as _).worker_threads(0);
        let db = options.durability(Durability::Disk).open("db").expect("a new store");
        db.insert("a", "1").expect("there is room");
        let memory = &db.store().tables.memory;
        let before = memory.memtable_bytes();
        for _ in 0..3 {
            fs.inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log"));
            let refused = db.insert("b", vec![7; 1 << 20]).expect_err("the disk is full");
            assert!(refused.is_no_space(), "{refused:?}");
            assert_eq!(memory.memtable_bytes(), before);
        }
        db.insert("b", "1").expect("there is room");
        assert!(memory.memtable_bytes() > before);
    }
}
