//! Idle compactions that are aborted: repeatedly, on a full disk, by an unreadable input.

use super::*;
use crate::{
    Event, EventListener,
    fs::{Call, Fault, FaultFs, Times},
    store::scheduler::tests::Wakes,
};

/// Error numbers of Linux.
const IO: i32 = 5;
const NO_SPACE: i32 = 28;

/// An idle store on a disk that can fail, and the compaction of two runs of `entries` entries that
/// it has claimed.
fn begun(entries: u64) -> (Arc<FaultFs>, Fixture, Job) {
    let faults = Arc::new(FaultFs::new(Arc::new(MemoryFs::with_seed(1))));
    let shared = Arc::clone(&faults);
    let fixture = Fixture::with_seed(1, |options| options.fs(shared));
    fixture.write_run(entries);
    fixture.write_run(entries);
    fixture.rest();
    fixture.advance(300);
    let job = fixture.claim().expect("it rests");
    (faults, fixture, job)
}

/// No thread waits for it: it neither pauses the workers nor is reported, and is not retried before
/// the keyspace changes.
#[test]
fn a_full_disk_ends_it() {
    let (faults, fixture, job) = begun(100);
    faults.inject(Fault::new(NO_SPACE, Times::ForGood).calls(&Call::GROWING));
    assert!(fixture.store().carry_out(&job), "it is no error");
    assert!(fixture.store().scheduler.state.lock().full_disk.error().is_none());
    faults.heal();
    fixture.advance(20_000);
    assert_eq!((fixture.rest(), fixture.level0_runs(), fixture.wait_max()), (0, 2, None));
    fixture.write_run(100);
    fixture.rest();
    fixture.advance(300);
    assert!(fixture.rest() > 0);
    assert_eq!(fixture.level0_runs(), 0);
}

/// An aborted compaction does not prove that there is room, so a full disk is reported once.
#[test]
fn it_leaves_alone_that_others_wait_for_room() {
    let (faults, fixture, job) = begun(100);
    faults.inject(Fault::new(NO_SPACE, Times::ForGood).calls(&Call::GROWING).suffix(".sst"));
    fixture.write_to("other");
    let flush = fixture.store().claim().expect("a memtable is frozen");
    assert!(!fixture.store().carry_out(&flush), "the disk is full");
    assert!(fixture.store().carry_out(&job), "it is no error");
    assert!(fixture.store().scheduler.state.lock().full_disk.error().is_some(), "the flush waits");
}

/// Otherwise they wait for its end, with one worker.
#[test]
fn it_wakes_tasks_that_wait_for_room() {
    let (_, fixture, job) = begun(2000);
    let (scheduler, wakes) = (&fixture.store().scheduler, Wakes::new());
    scheduler.room_waits().add(&mut None, &Arc::clone(&wakes).into());
    scheduler.wake();
    assert!(fixture.store().carry_out(&job), "there is room");
    assert_eq!(wakes.count(), 1);
}

/// Flushes of another keyspace during each compaction waste few bytes.
#[test]
fn it_does_not_give_way_for_ever() {
    /// Most wasted reads of a table of level 0.
    const TIMES_MAX: u64 = 2;
    let fixture = Fixture::new();
    let (mut wasted, mut times) = (0, 0);
    for story in 1..=2 {
        // Together they are not due.
        fixture.write_run(2000);
        if story == 1 {
            fixture.write_run(2000);
        }
        for _ in 0..50 {
            fixture.rest();
            fixture.advance(12_000);
            let claimed = fixture.claim();
            fixture.write_to("other");
            let runs = fixture.level0_runs();
            let Some(job) = claimed else { continue };
            let Job::CompactIdle(tree, compaction) = &job else { panic!("{job:?}") };
            assert!(fixture.store().carry_out(&job), "it is no error");
            if tree.name() == "default" {
                assert_eq!(fixture.level0_runs(), runs, "it is aborted");
                (wasted, times) = (wasted + compaction.input_bytes, times + 1);
            }
        }
        fixture.rest();
        assert_eq!(times, TIMES_MAX, "story {story}");
    }
    let flushed = fixture.store().scheduler.done().flush_bytes_written;
    assert!(wasted <= TIMES_MAX * flushed, "{wasted} for {flushed}");
    // Level 0 becomes due. Later runs are compacted as before.
    fixture.write_run(2000);
    fixture.rest();
    assert_eq!(fixture.level0_runs(), 0);
    fixture.write_run(2000);
    fixture.write_run(2000);
    fixture.rest();
    fixture.advance(10_000);
    assert!(fixture.rest() > 0);
    assert_eq!(fixture.level0_runs(), 0);
}

/// Reports quarantined tables, and a store that became read-only.
#[derive(Debug)]
struct Failures(mpsc::SyncSender<String>);

impl EventListener for Failures {
    fn on_event(&self, event: &Event) {
        match event {
            Event::TableQuarantined { keyspace, .. } => self.0.send(keyspace.clone()),
            Event::ReadOnly { .. } => self.0.send("read-only".to_owned()),
            _ => Ok(()),
        }
        .expect("the receiver is alive");
    }
}

/// An input that cannot be read is reported once and quarantined. The store stays writable.
#[test]
fn what_it_cannot_read_does_not_end_writing() {
    for (name, is_damaged) in [("reads fail", false), ("a block is damaged", true)] {
        let (sender, reported) = mpsc::sync_channel(100);
        let reported = || reported.try_iter().collect::<Vec<_>>();
        let fixture = Fixture::new();
        fixture.write_run(100);
        fixture.write_run(100);
        fixture.rest();
        let Fixture { fs, clock, db } = fixture;
        drop(db);
        let faults = Arc::new(FaultFs::new(Arc::clone(&fs) as Arc<dyn Fs>));
        let fail = || {
            let reads = Fault::new(IO, Times::ForGood).calls(&[Call::ReadAt]).suffix(".sst");
            faults.inject(reads);
        };
        let files = || fs.list("db".as_ref()).expect("a directory");
        if is_damaged {
            let table = files().into_iter().find(|name| name.ends_with(".sst"));
            let path = format!("db/{}", table.expect("one was flushed"));
            let mut bytes = fs.read(&path).expect("it is there").to_vec();
            bytes[100] ^= 1;
            fs.replace(&path, bytes).expect("it is there");
        }
        let shared = options(&fs, &clock).fs(Arc::clone(&faults) as Arc<dyn Fs>);
        let db = shared.listener(Arc::new(Failures(sender))).open("db").expect("a good store");
        let fixture = Fixture { fs: Arc::clone(&fs), clock, db };
        if !is_damaged {
            fail();
        }
        fixture.rest();
        let before = files();
        for round in 1..=3 {
            fixture.advance(20_000);
            assert_eq!((fixture.rest(), fixture.level0_runs()), (0, 2), "{name}, {round}");
        }
        assert_eq!(reported(), ["default"], "{name}: no retry");
        fixture.store().unlink_obsolete();
        assert_eq!(files(), before, "{name}");
        fixture.db.insert("more", "").expect("the store goes on");
        assert!(fixture.db.stats().read_only.is_none(), "{name}");

        faults.heal();
        // Four runs: the table goes below level 0, then the newer ones. What can be read again is
        // merged.
        fixture.write_run(100);
        fixture.write_run(100);
        fixture.rest();
        fixture.advance(20_000);
        fixture.rest();
        assert!(fixture.level0_runs() < 4, "{name}");
        assert_eq!(reported(), [] as [&str; 0], "{name}");
        let stats = fixture.db.stats();
        assert_eq!(
            (stats.tables_quarantined, stats.read_only),
            (u64::from(is_damaged), None),
            "{name}"
        );
    }
}
