//! Jobs that a compaction carries out, without a free worker.

use std::{pin::Pin, task::Context};

use super::{
    super::urgent::UrgentJobs,
    priorities::{Busy, add_runs, busy, claim_long, freeze, level0_runs, options, tree_of},
    *,
};
use crate::{RoomFuture, sync::atomic::AtomicUsize, tests::ENOSPC};

/// Otherwise a compaction of gigabytes stops writes, with one worker.
#[test]
fn a_compaction_carries_out_what_is_urgent() {
    let busy = busy(options(1));
    let db = &busy.db;
    let long = claim_long(db);
    add_runs(db, "small", 4, 10);
    freeze(db, "other", 10);
    let before = db.stats().background;
    assert!(db.store().carry_out(&long), "there is room");
    let after = db.stats().background;
    assert_eq!(after.flushes - before.flushes, 1);
    assert_eq!(after.compactions - before.compactions, 2, "level 0, and the requested range");
    assert_eq!((level0_runs(db, "small"), level0_runs(db, "large")), (0, 0));
}

/// As a compaction of long entries does until it ends.
#[test]
fn a_compaction_that_exceeds_its_share_carries_out_flushes() {
    for exceeds in [true, false] {
        let busy = busy(options(1).memory_budget(64 << 20));
        let (db, store) = (&busy.db, busy.db.store());
        let long = claim_long(db);
        add_runs(db, "small", 4, 10);
        freeze_long(db, "other");
        let share = store.tables.worker_share();
        let bytes = share.bytes_max() / 2 + 1;
        let _taken = share.take(if exceeds { 2 * bytes } else { bytes });
        assert_eq!(share.is_beyond(), exceeds);
        let before = db.stats().background;
        assert!(store.carry_out_within(&long, |_| Arc::clone(&share)), "there is room");
        let after = db.stats().background;
        assert_eq!(after.flushes - before.flushes, 1, "the share is exceeded: {exceeds}");
        let merges = after.compactions - before.compactions;
        assert_eq!(merges, 1, "a merge would wait for it: {exceeds}");
    }
}

/// The other thread may exceed its share, and the merge would wait for the end of both.
#[test]
fn a_compaction_of_several_ranges_carries_out_flushes_only() {
    let busy = busy(options(1).memory_budget(64 << 20));
    let (db, store) = (&busy.db, busy.db.store());
    let Job::Compact(_, long) = claim_long(db) else { panic!("a compaction is due") };
    add_runs(db, "small", 4, 10);
    freeze(db, "other", 10);
    let share = store.tables.worker_share();
    let of_another_thread = share.of_another_thread();
    let done_by = |share| {
        let before = db.stats().background;
        for _ in 0..8 {
            UrgentJobs::new(store, &long, share).carry_out();
        }
        let after = db.stats().background;
        (after.flushes - before.flushes, after.compactions - before.compactions)
    };
    assert_eq!(done_by(&share), (1, 0));
    drop(of_another_thread);
    assert_eq!(done_by(&share), (0, 1));
}

/// A flush holds the memory of one entry at a time.
#[test]
fn a_flush_waits_for_no_compaction_that_exceeds_its_share() {
    let db = options(0).memory_budget(64 << 20).open("db").expect("a new store");
    let share = db.store().tables.worker_share();
    let taken = share.take(share.bytes_max() + 1);
    freeze_long(&db, "other");
    let (sender, flushed) = mpsc::channel();
    let flush = thread::spawn({
        let db = db.clone();
        move || sender.send(db.flush())
    });
    let result = flushed.recv_timeout(Duration::from_secs(20));
    drop((taken, share));
    result.expect("it does not wait").expect("there is room");
    flush.join().expect("it has ended").expect("the receiver is alive");
}

/// Freezes a memtable of `name` with an entry that exceeds the share of a worker.
fn freeze_long(db: &Db, name: &str) {
    let keyspace = db.keyspace(name).expect("there is room");
    // A value that expires is in no blob file.
    let (value, ttl) = (vec![7; 4 << 20], Duration::from_secs(3600));
    keyspace.insert_with_ttl("long", value, ttl).expect("there is room");
    let _placement = db.store().writer.placement();
    assert!(tree_of(db, name).freeze());
}

/// A table takes most of the share before it ends: other workers may be in the same state.
#[test]
fn a_compaction_flushes_in_the_middle_of_a_table() {
    let busy = busy(options(1));
    let store = busy.db.store();
    let Job::Compact(_, long) = claim_long(&busy.db) else { panic!("a compaction is due") };
    for taken_percent in [40, 74, 99] {
        freeze(&busy.db, "other", 10);
        let share = store.tables.worker_share();
        let _taken = share.take(share.bytes_max() * taken_percent / 100);
        let before = busy.db.stats().background.flushes;
        UrgentJobs::new(store, &long, &share).carry_out();
        let flushes = busy.db.stats().background.flushes - before;
        assert_eq!(flushes, 1, "with {taken_percent} % of the share taken");
    }
}

/// The other worker flushes meanwhile, also in the middle of a compaction.
#[test]
fn one_worker_at_a_time_unlinks() {
    let busy = busy(options(2));
    let store = busy.db.store();
    let long = claim_long(&busy.db);
    assert!(store.carry_out(&long), "there is room");
    let claims = || store.scheduler.state.lock().claims();
    let before = claims();
    assert!(matches!(store.claim(), Some(Job::Unlink)), "inputs are obsolete");
    assert_eq!(claims(), before + 1, "else a compaction leaves flushes to this worker");
    let next = store.claim();
    assert!(!matches!(next, Some(Job::Unlink)), "{next:?}");
    let before = claims();
    assert!(store.carry_out(&Job::Unlink));
    assert_eq!(claims(), before - 1);
}

/// A long merge of level 0, too, once it delays writes.
#[test]
fn a_compaction_carries_out_long_merges_that_delay_writes() {
    for (runs, left) in [(11, 11), (12, 0)] {
        let busy = busy(options(1));
        let db = &busy.db;
        let long = claim_long(db);
        add_runs(db, "small", runs, 700);
        assert!(db.store().carry_out(&long), "there is room");
        assert_eq!(level0_runs(db, "small"), left, "{runs} runs");
    }
}

/// Freezes a memtable now and after each of the next 29 flushes.
fn refill(busy: &Busy) {
    freeze(&busy.db, "other", 1);
    let (db, mut left) = (busy.db.clone(), 29);
    busy.on_events(move |event| {
        if matches!(event, Event::Flushed { .. }) && left > 0 {
            left -= 1;
            freeze(&db, "other", 1);
        }
    });
}

#[test]
fn a_compaction_goes_on_although_flushes_are_always_due() {
    let busy = busy(options(1));
    let (db, long) = (&busy.db, claim_long(&busy.db));
    refill(&busy);
    let before = db.stats().background.flushes;
    assert!(db.store().carry_out(&long), "there is room");
    let flushes = db.stats().background.flushes - before;
    assert!((5..=20).contains(&flushes), "{flushes} flushes");
    assert_eq!(level0_runs(db, "large"), 0);
}

/// Writes are not stopped during a pause, so there are always flushes to carry out.
#[test]
fn a_pause_ends_a_compaction_although_flushes_are_always_due() {
    let busy = busy(options(1));
    let (db, long) = (&busy.db, claim_long(&busy.db));
    refill(&busy);
    let pausing = thread::spawn({
        let db = db.clone();
        move || drop(db.pause_compactions().expect("the compaction ends"))
    });
    while !db.store().scheduler.is_paused() {
        thread::sleep(Duration::from_millis(1));
    }
    let before = db.stats().background.flushes;
    assert!(db.store().carry_out(&long), "it is cancelled");
    assert_eq!(db.stats().background.flushes - before, 0);
    assert_eq!(level0_runs(db, "large"), 3);
    pausing.join().expect("no compaction is in flight");
}

/// A keyspace with few writes does not pin the log, and obsolete tables do not take the disk.
#[test]
fn the_log_and_obsolete_files_are_bounded_during_a_compaction() {
    const LOG_BYTES_MAX: u64 = 64 << 10;
    let fs = Arc::new(MemoryFs::with_seed(1));
    let options = options(1).fs(Arc::clone(&fs) as _);
    let options = options.log_bytes_max(LOG_BYTES_MAX).log_segment_bytes(8 << 10);
    let busy = busy(options);
    let (db, store) = (&busy.db, busy.db.store());
    let long = claim_long(db);
    db.keyspace("idle").expect("there is room").insert("key", "value").expect("there is room");
    add_runs(db, "small", 4, 200);
    freeze(db, "other", 200);
    let inputs: Vec<_> =
        tree_of(db, "small").view().version.metas().iter().map(|it| it.id).collect();
    assert!(db.stats().log_bytes > LOG_BYTES_MAX, "an idle keyspace pins it");
    assert!(store.carry_out(&long), "there is room");
    assert_eq!(level0_runs(db, "small"), 0);
    let log_bytes = db.stats().log_bytes;
    assert!(log_bytes <= LOG_BYTES_MAX, "{log_bytes} bytes");
    let names = fs.list("db".as_ref()).expect("it exists");
    let of_inputs = |id: &u64| names.iter().any(|name| *name == format!("{id:06}.sst"));
    assert!(!inputs.iter().any(of_inputs), "{inputs:?} of {names:?}");
}

/// Otherwise one passing error stops the flushes until the compaction ends, and writes fail.
#[test]
fn a_compaction_repeats_a_flush_that_found_no_space() {
    for (pause_ms, flushes) in [(499, 1), (500, 2)] {
        let fs = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
        let clock = Arc::<ManualClock>::default();
        let options = options(1).fs(Arc::clone(&fs) as _).clock(Arc::clone(&clock) as _);
        let busy = busy(options);
        let (db, store) = (&busy.db, busy.db.store());
        let long = claim_long(db);
        freeze(db, "one", 1);
        freeze(db, "two", 1);
        let (faults, is_first, failures) =
            (Arc::clone(&fs), Cell::new(true), Arc::<AtomicUsize>::default());
        let counts = Arc::clone(&failures);
        busy.on_events(move |event| match event {
            Event::Flushed { .. } if is_first.replace(false) => {
                faults
                    .inject(Fault::new(ENOSPC, Times::Once).calls(&[Call::Create]).suffix(".sst"));
            }
            Event::NoSpace { .. } => {
                counts.fetch_add(1, SeqCst);
                clock.advance(Duration::from_millis(pause_ms));
            }
            _ => {}
        });
        let before = db.stats().background.flushes;
        assert!(store.carry_out(&long), "it has space");
        assert_eq!(failures.load(SeqCst), 1, "the flush of one of them");
        assert_eq!(db.stats().background.flushes - before, flushes, "{pause_ms} ms");
    }
}

/// Also behind many keyspaces with another compaction due.
#[test]
fn a_compaction_carries_out_a_merge_that_a_write_waits_for() {
    let busy = busy(options(1));
    let db = &busy.db;
    let long = claim_long(db);
    let fifo = KeyspaceOptions::new().compaction_style(crate::Fifo::new(10 << 10));
    for number in 0..20 {
        let name = format!("fifo {number}");
        db.keyspace_with(&name, &fifo).expect("there is room");
        add_runs(db, &name, 2, 100);
    }
    add_runs(db, "stopped", 32, 1);
    let keyspace = db.keyspace("stopped").expect("it exists");
    let (sender, written) = mpsc::channel();
    let writer = thread::spawn(move || sender.send(keyspace.insert("key", "value")));
    let id = tree_of(db, "stopped").id;
    while db.store().scheduler.state.lock().due.stopped.first_from(0) != Some(id) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(db.store().carry_out(&long), "there is room");
    let result = written.recv_timeout(Duration::from_secs(10));
    result.expect("it does not wait for a worker").expect("there is room");
    writer.join().expect("it has ended").expect("the receiver is alive");
}

fn is_pending(room: &mut RoomFuture, wakes: &Arc<Wakes>) -> bool {
    Pin::new(room).poll(&mut Context::from_waker(&Arc::clone(wakes).into())).is_pending()
}

/// Otherwise they wait for its end, although the store is read-only.
#[test]
fn a_compaction_wakes_tasks_that_wait_for_room() {
    let busy = busy(options(1));
    let (db, store) = (&busy.db, busy.db.store());
    let Job::Compact(_, long) = claim_long(db) else { panic!("a compaction is due") };
    add_runs(db, "stopped", 32, 1);
    let (mut room, wakes) = (db.keyspace("stopped").expect("it exists").room(), Wakes::new());
    assert!(is_pending(&mut room, &wakes), "32 runs stop writes");
    store.poison(Error::WorkerPanicked);
    let share = store.tables.worker_share();
    let urgent = UrgentJobs::new(store, &long, &share);
    for _ in 0..2 {
        urgent.carry_out();
        assert_eq!(wakes.count(), 1, "once for each ring");
    }
    let result = room.wait();
    assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
}

/// Otherwise each would be kept until the next step, with its task.
#[test]
fn waits_for_room_keep_the_last_task_until_they_are_dropped() {
    let busy = busy(options(1));
    let db = &busy.db;
    add_runs(db, "stopped", 32, 1);
    let stopped = db.keyspace("stopped").expect("it exists");
    let (mut rooms, tasks) = ([stopped.room(), stopped.room()], [Wakes::new(), Wakes::new()]);
    for task in &tasks {
        for room in &mut rooms {
            assert!(is_pending(room, task), "32 runs stop writes");
        }
    }
    let count = || db.store().scheduler.room_waits.count();
    assert_eq!(count(), 2);
    drop(rooms);
    assert_eq!(count(), 0);
    assert!(tasks.iter().all(|task| Arc::strong_count(task) == 1));
}
