//! Acknowledged writes are in the log, and on the disk.

use std::{collections::BTreeMap, sync::Mutex as StdMutex};

use sievedb_format::SequenceNumber;

use super::{
    below, explore,
    log_host::{Host, Logged},
};
use crate::{
    Durability, Error,
    fs::{Call, Fault, Loss, Times},
    sync::thread,
    tests::{EIO, ENOSPC},
};

const WRITERS: u64 = 3;
const WRITES: u64 = 3;

/// One or two records fit into a segment.
const SEGMENT_BYTES: u64 = 300;

/// A log under test, and the results of its callers.
#[derive(Debug)]
struct Model {
    host: Host,
    told: StdMutex<BTreeMap<SequenceNumber, Told>>,
}

/// Result of a write.
#[derive(Debug)]
struct Told {
    key: String,
    durability: Durability,
    failure: Option<Error>,
}

impl Model {
    fn new() -> Self {
        Self { host: Host::new(SEGMENT_BYTES), told: StdMutex::default() }
    }

    /// Runs writers with writes of any durability, and one that makes everything durable.
    fn run(&self) {
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || (0..WRITES).for_each(|number| self.commit(writer, number)));
            }
            scope.spawn(|| self.persist());
        });
    }

    fn commit(&self, writer: u64, number: u64) {
        use Durability::{Disk, Memory, OsBuffer};
        let key = format!("key-{writer}-{number}");
        let durability = [Memory, OsBuffer, Disk][below(3) as usize];
        let mark = self.host.log.mark();
        let Some((sequence, outcome)) = self.host.commit(&key, durability) else { return };
        // No other thread has run since the call returned.
        let write = (sequence, key.clone());
        match (durability, &outcome) {
            (_, Err(_)) | (Memory, _) => {}
            (OsBuffer, _) => {
                let logged = self.host.logged(&Loss::Nothing, mark);
                assert!(logged.contains(&write), "{write:?} is not in the file: {logged:?}");
            }
            (Disk, _) => {
                let durable = self.host.logged(&Loss::Everything, mark);
                assert!(durable.contains(&write), "{write:?} is not durable: {durable:?}");
            }
        }
        let told = Told { key, durability, failure: outcome.err() };
        assert!(self.told.lock().unwrap().insert(sequence, told).is_none(), "{sequence} twice");
    }

    fn persist(&self) {
        let before = self.acknowledged(Durability::Memory);
        if self.host.persist().is_ok() {
            let durable = self.host.logged(&Loss::Everything, self.host.log.mark());
            for write in before {
                assert!(durable.contains(&write), "{write:?} was not persisted: {durable:?}");
            }
        }
    }

    /// Returns the writes acknowledged with this durability or a higher one, in order.
    fn acknowledged(&self, least: Durability) -> Vec<Logged> {
        let told = self.told.lock().unwrap();
        let good = told.iter().filter(|(_, t)| t.failure.is_none() && t.durability >= least);
        good.map(|(&sequence, told)| (sequence, told.key.clone())).collect()
    }

    fn failures(&self) -> BTreeMap<String, Error> {
        let told = self.told.lock().unwrap();
        told.values().filter_map(|t| Some((t.key.clone(), t.failure.clone()?))).collect()
    }
}

#[test]
fn acknowledged_records_are_where_they_should_be() {
    explore(3000, || {
        let model = Model::new();
        model.run();
        assert!(model.failures().is_empty(), "{:?}", model.failures());
        model.host.log.close(&model.host).unwrap();
        let durable = model.host.logged(&Loss::Everything, model.host.log.mark());
        let sequences: Vec<_> = durable.iter().map(|&(sequence, _)| sequence).collect();
        assert_eq!(sequences, Vec::from_iter(1..=WRITERS * WRITES));
        assert_eq!(durable, model.acknowledged(Durability::Memory));
    });
}

/// The disk is full for one append: its group fails. The next append logs records that no writer
/// waits for.
#[test]
fn full_disk_fails_those_who_wait() {
    explore(3000, || {
        let model = Model::new();
        let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]);
        let written_bytes = [0, 20, 70, 1000][below(4) as usize];
        model
            .host
            .fs
            .faults
            .inject(fault.after(usize::try_from(below(8)).unwrap()).written_bytes(written_bytes));
        model.run();
        let failures = model.failures();
        assert!(failures.values().all(Error::is_no_space), "{failures:?}");
        let refused = String::from_utf8_lossy(&model.host.fs.refused()).into_owned();
        let told = model.told.lock().unwrap();
        if refused.contains("key-") {
            for Told { key, durability, failure } in told.values() {
                let waits = *durability > Durability::Memory;
                let expected = waits && refused.contains(key.as_str());
                assert_eq!(failure.is_some(), expected, "{key}, {durability:?}");
            }
        }
        assert_eq!(told.len() as u64, WRITERS * WRITES, "a full disk makes nothing read-only");
        drop(told);
        model.host.fs.faults.heal();
        // The next segment records the end of the previous one. Until then, failed records may
        // reappear.
        model.commit(WRITERS, 0);
        model.host.log.close(&model.host).unwrap();
        let durable = model.host.logged(&Loss::Everything, model.host.log.mark());
        assert_eq!(durable, model.acknowledged(Durability::Memory), "failed: {failures:?}");
    });
}

/// A sync or an append fails, and the content of the disk is unknown. The store accepts no more
/// writes, and later syncs of that file return no error.
#[test]
fn failure_for_good_ends_durable_writes() {
    explore(3000, || {
        let model = Model::new();
        let call = [Call::SyncData, Call::SyncData, Call::Append][below(3) as usize];
        let fault = Fault::new(EIO, Times::Once).calls(&[call]);
        model.host.fs.faults.inject(fault.after(usize::try_from(below(6)).unwrap()));
        model.run();
        let struck = model.host.fs.faults.failures() > 0;
        model.host.fs.faults.heal();
        if struck {
            assert!(model.host.commit("late", Durability::Memory).is_none(), "not read-only");
            assert!(model.host.persist().is_err(), "persisted after a failure");
        } else {
            assert!(model.failures().is_empty(), "{:?}", model.failures());
        }
        let mark = model.host.log.mark();
        for (loss, least) in
            [(Loss::Nothing, Durability::OsBuffer), (Loss::Everything, Durability::Disk)]
        {
            let logged = model.host.logged(&loss, mark);
            for write in model.acknowledged(least) {
                assert!(logged.contains(&write), "{write:?} is lost, left: {logged:?}");
            }
        }
    });
}

/// Each seal is durable before a mark beyond it is: otherwise the log is damaged after a power cut.
#[test]
fn a_close_syncs_the_seals_of_earlier_segments() {
    explore(1, || {
        let host = Host::new(SEGMENT_BYTES);
        let (sequence, logged) = host.commit("key", Durability::Disk).unwrap();
        logged.unwrap();
        host.log.leave_flushed(&host, sequence + 1).unwrap();
        let mark = host.log.close(&host).unwrap().unwrap();
        assert_eq!(host.log.size().segments, 2);
        let durable = host.logged(&Loss::Everything, mark);
        assert_eq!(durable, [(sequence, "key".to_owned())]);
    });
}

/// The locks to begin a segment precede the placement lock. A sole write holds that lock, so it
/// begins no segment, even if the limit of segments was lowered meanwhile.
#[test]
fn a_sole_write_begins_no_segment() {
    explore(1, || {
        let host = Host::new(SEGMENT_BYTES);
        let segments_after = |key, lowered: Option<u64>| {
            let lower = || lowered.into_iter().for_each(|bytes| host.set_segment_bytes(bytes));
            host.commit_after(key, Durability::OsBuffer, lower).unwrap().1.unwrap();
            host.log.size().segments
        };
        assert_eq!(segments_after("first", None), 1);
        assert_eq!(segments_after("second", Some(1)), 1);
        assert_eq!(segments_after("third", None), 2);
        assert_eq!(host.logged(&Loss::Nothing, host.log.mark()).len(), 3);
    });
}
