//! Shares of the memory for writing, and limits of the block cache.

use std::{thread, time::Duration};

use super::*;
use crate::stats::CacheMoves;

const MIB: u64 = 1 << 20;

fn room_of(block_cache_bytes: Option<u64>) -> Arc<CacheRoom> {
    let options = Options::new().memory_budget(64 * MIB);
    let options = match block_cache_bytes {
        Some(bytes) => options.block_cache_bytes(bytes),
        None => options,
    };
    CacheRoom::of(&options).expect("a valid budget")
}

fn room() -> Arc<CacheRoom> {
    room_of(None)
}

#[test]
fn the_cache_has_what_the_others_leave() {
    let room = room();
    assert_eq!(room.cache().capacity_bytes(), 60 * MIB, "nothing is taken");
    let uses = [
        MemoryUse::Memtables,
        MemoryUse::FrozenMemtables,
        MemoryUse::PinnedMemtables,
        MemoryUse::Filters,
        MemoryUse::Indexes,
        MemoryUse::Bookkeeping,
    ];
    let charges = uses.map(|what| {
        let before = room.cache().capacity_bytes();
        let charge = room.memory.charge(what, 3 << 20);
        room.fit();
        assert_eq!(before - room.cache().capacity_bytes(), 3 * MIB, "{what:?}");
        charge
    });
    let share = WorkerShare::new(Arc::clone(&room), 4 * MIB, false);
    let other = WorkerShare::new(Arc::clone(&room), 4 * MIB, false);
    let within = other.take(4 * MIB);
    let mut taken = share.take(4 * MIB);
    assert_eq!(room.cache().capacity_bytes(), 34 * MIB, "workers within their shares");
    taken.set(20 * MIB);
    assert_eq!(room.cache().capacity_bytes(), 18 * MIB, "16 beyond");
    let more = share.take(30 * MIB);
    assert_eq!(room.cache().capacity_bytes(), MIB, "one step at least");
    drop((charges, taken, more, share, within, other));
    assert_eq!(room.cache().capacity_bytes(), 60 * MIB, "all is given back");
}

#[test]
fn moves_are_counted_for_the_part_that_grew_or_shrank() {
    let room = room();
    assert_eq!(room.moves(), MemoryMoves::default(), "the first capacity is no move");
    let small = room.memory.charge(MemoryUse::Bookkeeping, 100);
    room.fit();
    let index = room.memory.charge(MemoryUse::Indexes, 2 << 20);
    room.fit();
    let memtable = room.memory.charge(MemoryUse::Memtables, 5 << 20);
    room.fit();
    room.fit();
    memtable.move_to(MemoryUse::FrozenMemtables);
    room.fit();
    memtable.move_to(MemoryUse::PinnedMemtables);
    room.fit();
    drop(memtable);
    room.fit();
    drop(WorkerShare::new(Arc::clone(&room), 4 * MIB, false).take(4 * MIB));
    let smaller = Options::new().memory_budget(32 * MIB).memory;
    room.change(smaller).expect("a valid budget");
    let moves = room.moves();
    let once = |taken: u64, returned: u64| CacheMoves {
        takes: u64::from(taken > 0),
        bytes_taken: taken * MIB,
        returns: u64::from(returned > 0),
        bytes_returned: returned * MIB,
    };
    // The 100 bytes cost a whole step, for the part that grew.
    assert_eq!(moves.bookkeeping, once(1, 0));
    assert_eq!(moves.indexes, once(2, 0));
    assert_eq!(moves.memtables, once(5, 5));
    assert_eq!(moves.writing, once(4, 4));
    assert_eq!((moves.budget.takes, moves.budget.returns), (1, 0));
    assert_eq!(moves.filters, CacheMoves::default());
    drop((small, index));
}

#[test]
fn a_cache_that_was_set_has_a_ceiling_with_the_indexes() {
    let room = room_of(Some(16 * MIB));
    assert_eq!(room.cache().capacity_bytes(), 16 * MIB);
    let memtable = room.memory.charge(MemoryUse::Memtables, 16 << 20);
    let index = room.memory.charge(MemoryUse::Indexes, 2 << 20);
    room.fit();
    assert_eq!(room.cache().capacity_bytes(), 14 * MIB, "of what others do not use");
    let more = room.memory.charge(MemoryUse::Memtables, 34 << 20);
    room.fit();
    assert_eq!(room.cache().capacity_bytes(), 8 * MIB, "the pool has no more");
    drop((memtable, index, more));
}

/// A fit is due before memtables exceed the memory of the pool, and not with every write.
#[test]
fn memtables_that_grow_ask_for_room_in_steps() {
    for block_cache_bytes in [None, Some(0), Some(10 * MIB), Some(10 * MIB + 1)] {
        let room = room_of(block_cache_bytes);
        room.fit();
        let memtable = room.memory.charge(MemoryUse::Memtables, 0);
        let mut fits = 0;
        for _ in 0..16 << 10 {
            memtable.grow(1 << 10);
            if room.memory.is_fit_due() {
                room.fit();
                fits += 1;
            }
            let used = room.cache().capacity_bytes() + room.memory.memtable_bytes();
            assert!(used <= 64 * MIB, "{used}");
        }
        assert!((15..=16).contains(&fits), "{fits} with {block_cache_bytes:?}");
    }
}

#[test]
fn one_flush_and_one_other_job_at_a_time_exceed_their_shares() {
    let room = room();
    let share_of = |is_flush| WorkerShare::new(Arc::clone(&room), MIB, is_flush);
    let (first, second) = (share_of(false), share_of(false));
    let taken = first.take(30 * MIB);
    drop(share_of(true).take(2 * MIB));
    assert!(!room.is_awaited());
    let waiting = thread::spawn(move || drop(second.take(30 * MIB)));
    while !room.is_awaited() {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    assert!(!waiting.is_finished());
    assert_eq!(room.memory.bytes(MemoryUse::Writing), 30 * MIB);
    drop((taken, first));
    waiting.join().expect("it only waited");
    assert!(!room.is_awaited());
    assert_eq!(room.memory.bytes(MemoryUse::Writing), 0);
}

#[test]
fn threads_of_one_job_exceed_their_shares_together() {
    let room = room();
    let share = WorkerShare::new(Arc::clone(&room), MIB, false);
    let other = share.of_another_thread();
    let taken = share.take(MIB);
    assert!(!other.is_beyond());
    let more = other.take(20 * MIB);
    assert!(share.is_beyond(), "and waits for nothing when it takes more");
    drop((share.take(20 * MIB), taken, share));
    let next = WorkerShare::new(Arc::clone(&room), MIB, false);
    let waiting = thread::spawn(move || drop(next.take(2 * MIB)));
    while !room.is_awaited() {
        thread::yield_now();
    }
    assert_eq!(room.memory.bytes(MemoryUse::Writing), 20 * MIB);
    drop((more, other));
    waiting.join().expect("it only waited");
    assert_eq!(room.memory.bytes(MemoryUse::Writing), 0);
}

#[test]
fn a_flush_within_another_job_has_a_quarter_of_its_share() {
    let room = room();
    let share = WorkerShare::new(Arc::clone(&room), 8 * MIB, false);
    let mut taken = share.take(MIB);
    for (bytes, of_flush, is_beyond, of_other) in
        [(1, 7, false, 7), (6, 2, false, 2), (7, 2, true, 1), (9, 2, true, 0)]
    {
        taken.set(bytes * MIB);
        let rest = share.rest(true);
        assert_eq!((rest.bytes_max(), rest.is_beyond()), (of_flush * MIB, is_beyond));
        assert_eq!(share.rest(false).bytes_max(), of_other * MIB, "{bytes} MiB are taken");
    }
}

/// So many tables take no more than the pool has, and a plan is due for each change.
#[test]
fn filters_give_way_to_the_bookkeeping_of_many_tables() {
    let room = room();
    let memory = &room.memory;
    let filters = memory.charge(MemoryUse::Filters, 16 << 20);
    let tables = memory.charge(MemoryUse::Bookkeeping, 0);
    let mut held = 0;
    for (bytes, want, is_due) in [
        (24, 16, false),
        (30, 10, true),
        (31, 9, true),
        (60, 8, true),
        (31, 9, false),
        (28, 12, true),
        (24, 16, true),
        (0, 16, false),
    ] {
        tables.grow(bytes << 20);
        tables.shrink(held << 20);
        held = bytes;
        room.fit();
        assert_eq!(memory.filter_bytes_max(), want * MIB, "{bytes} MiB");
        assert_eq!(memory.filters_are_due(), is_due, "{bytes} MiB");
        memory.begin_filter_plan();
    }
    drop((filters, tables));
}

#[test]
fn a_shutdown_ends_the_waits_for_a_turn() {
    let room = room();
    let [first, second] = [(); 2].map(|()| WorkerShare::new(Arc::clone(&room), MIB, false));
    let _taken = first.take(30 * MIB);
    let waiting = thread::spawn(move || drop(second.take(30 * MIB)));
    while !room.is_awaited() {
        thread::yield_now();
    }
    room.shut_down();
    waiting.join().expect("it only waited");
}
