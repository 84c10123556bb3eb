//! Asynchronous commits are durable when they resolve, and so is every write below the durable
//! watermark.

use std::{
    panic,
    sync::{Arc, Mutex as StdMutex},
};

use sievedb_format::SequenceNumber;

use super::{below, explore, log_host::Host};
use crate::{
    Durability::{Disk, Memory, OsBuffer},
    commit::{DurableWait, DurableWaits},
    fs::{Call, Fault, Loss, Times},
    sync::thread,
    tests::EIO,
};

const WRITERS: u64 = 2;
const WRITES: u64 = 3;
const READS: u64 = 8;

/// Two or three records fit into a segment.
const SEGMENT_BYTES: u64 = 400;

/// A log under test with its thread for syncs.
#[derive(Debug)]
struct Model {
    host: Host,
    waits: DurableWaits,
    /// Waits without a waiting thread before the close.
    left: StdMutex<Vec<Arc<DurableWait>>>,
}

impl Model {
    fn new(counts_unsynced: bool) -> Self {
        let mut host = Host::new(SEGMENT_BYTES);
        host.counts_unsynced = counts_unsynced;
        Self { host, waits: DurableWaits::default(), left: StdMutex::default() }
    }

    /// Runs writers, a reader of the watermark and the thread for syncs.
    fn run(&self) {
        thread::scope(|scope| {
            scope.spawn(|| self.waits.run(&self.host.log, &self.host));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || (0..WRITES).for_each(|n| self.write(writer, n))))
                .collect();
            let reader = scope.spawn(|| (0..READS).for_each(|_| self.check_watermark()));
            for writer in writers {
                writer.join().unwrap();
            }
            reader.join().unwrap();
            self.waits.stop();
        });
    }

    fn write(&self, writer: u64, number: u64) {
        self.check_watermark();
        let key = format!("key-{writer}-{number}");
        if below(3) == 0 {
            if let Some((sequence, Ok(()))) = self.host.commit(&key, Disk) {
                self.check_durable(sequence);
            }
            return;
        }
        let Some((sequence, committed)) = self.host.commit(&key, Memory) else { return };
        committed.unwrap();
        let durability = [OsBuffer, Disk][below(2) as usize];
        let wait = self.waits.add(&self.host.log, sequence, durability);
        if below(2) == 0 {
            self.left.lock().unwrap().push(wait);
        } else if wait.wait().is_ok() && durability == Disk {
            self.check_durable(sequence);
        }
    }

    /// Checks that all writes up to `sequence` survive a power cut.
    fn check_durable(&self, sequence: SequenceNumber) {
        let durable = self.host.logged(&Loss::Everything, self.host.log.mark());
        let sequences: Vec<_> = durable.iter().map(|&(sequence, _)| sequence).collect();
        assert!(sequences.len() as u64 >= sequence, "{sequence} is not durable: {sequences:?}");
        assert_eq!(sequences, Vec::from_iter(1..=sequences.len() as u64));
    }

    fn check_watermark(&self) {
        let watermark = self.host.log.synced();
        self.check_durable(watermark);
    }

    /// Closes the log, which ends all waits. Returns the number that failed.
    fn close(&self) -> usize {
        let closed = self.host.log.close(&self.host).map(drop);
        self.waits.end(&self.host.log, &closed);
        let left = self.left.lock().unwrap();
        left.iter().filter(|wait| wait.wait().is_err()).count()
    }
}

#[test]
fn asynchronous_commits_are_durable_when_they_resolve() {
    explore(2000, || {
        let model = Model::new(false);
        model.run();
        assert_eq!(model.close(), 0);
        model.check_durable(WRITERS * WRITES);
        let late = model.waits.add(&model.host.log, WRITERS * WRITES, Disk);
        late.wait().unwrap();
    });
}

/// The watermark does not advance, and every wait ends.
#[test]
fn failed_sync_stops_the_watermark() {
    explore(2000, || {
        let model = Model::new(false);
        let fault = Fault::new(EIO, Times::Once).calls(&[Call::SyncData]);
        model.host.fs.faults.inject(fault.after(usize::try_from(below(5)).unwrap()));
        model.run();
        let struck = model.host.fs.faults.failures() > 0;
        let watermark = model.host.log.synced();
        model.host.fs.faults.heal();
        let failed = model.close();
        if struck {
            assert_eq!(model.host.log.synced(), watermark, "it moved after a failure");
        } else {
            assert_eq!(failed, 0);
        }
        model.check_watermark();
    });
}

#[test]
fn watermark_before_the_sync_is_found() {
    let found = panic::catch_unwind(|| {
        explore(2000, || {
            let model = Model::new(true);
            model.run();
            model.close();
        });
    });
    assert!(found.is_err(), "the planted bug was not found");
}
