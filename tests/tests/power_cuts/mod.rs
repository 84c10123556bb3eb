//! Power cuts of real file systems on loop devices.
//!
//! A child process makes `Disk` writes and records each acknowledgement outside of the file system.
//! The parent reads the counters, shuts the file system down without flushing its journal, mounts
//! it again and checks that every acknowledged write is present. Acknowledgements during the cut
//! are counted separately: the kernel loses those even without a store, as the control shows.
//!
//! `SIEVE_POWER_CUTS` sets the number of cuts of each file system, by default 0. Needs Linux and
//! root.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]
#![cfg(target_os = "linux")]

mod device;
mod writer;

use std::{env, path::Path, process::Child, thread, time::Duration};

use device::{Device, FileSystem, enter_own_mounts};
use sievedb_tests::{
    rng::{Rng, mix},
    settings::{from_env, report, seed},
};
use writer::{Counters, Job, THREADS, check_plain, check_store, start};

/// Cuts of a file system before it is recreated: checks take longer with more writes.
const CUTS_EACH: usize = 10;
/// Cuts of the control without syncs.
const CONTROL_CUTS: usize = 5;

const EXT4: FileSystem = FileSystem { name: "ext4", kind: "ext4", mount: "", free_bytes: None };
const WRITEBACK: FileSystem =
    FileSystem { name: "ext4, data=writeback", mount: ",data=writeback", ..EXT4 };
const XFS: FileSystem = FileSystem { name: "XFS", kind: "xfs", ..EXT4 };
const NEARLY_FULL: FileSystem =
    FileSystem { name: "ext4, nearly full", free_bytes: Some(3 << 20), ..EXT4 };

/// Results of the cuts of a file system.
#[derive(Debug, Default)]
struct Outcome {
    cuts: usize,
    /// Writes acknowledged before a cut, and how many of them were lost.
    acknowledged: u64,
    lost: u64,
    /// Writes acknowledged during a cut, and the number of lost ones.
    in_flight: u64,
    in_flight_lost: u64,
    /// Other violations, such as a store that does not open.
    wrong: Vec<String>,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.lost == 0 && self.wrong.is_empty()
    }

    fn report(&self, name: &str) {
        let Self { cuts, acknowledged, lost, in_flight, in_flight_lost, wrong } = self;
        report(&format!(
            "power cuts: {name}: {cuts} cuts, {acknowledged} acknowledged writes, {lost} lost, {} \
             other violations; {in_flight} acknowledged during a cut, {in_flight_lost} of them lost",
            wrong.len()
        ));
    }
}

/// Kills the child on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cuts the power `cuts` times while `job` runs on `file_system`.
fn cut(file_system: &FileSystem, job: Job, cuts: usize, lots: &mut Rng) -> Outcome {
    let mut outcome = Outcome::default();
    let mut device = None;
    // Result of the last check: this many writes were present before the next ones.
    let mut base = [0; THREADS];
    for number in 0..cuts {
        if number % CUTS_EACH == 0 || file_system.free_bytes.is_some() || job != Job::Store {
            // Unmounts the old one first.
            drop(device.take());
            base = [0; THREADS];
        }
        let device = device.get_or_insert_with(|| Device::new(file_system));
        device.mount();
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::create(&dir.path().join("acknowledged"), base);
        let mut child = Running(start(job, device.dir(), &dir.path().join("acknowledged")));
        while counters.read() == base {
            assert!(child.0.try_wait().unwrap().is_none(), "the writer ended by itself");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(lots.below(150) as u64));

        // Later acknowledgements may be lost.
        let before = counters.read();
        device.cut();
        let ended = child.0.wait().unwrap();
        if !ended.success() {
            outcome.wrong.push(format!("cut {number}: the writer ended with {ended}"));
        }
        let after = counters.read();
        device.unmount();
        device.mount();
        device.make_room();
        outcome.cuts += 1;
        let found = match job {
            Job::Plain => Ok(check_plain(&device.dir())),
            Job::Store | Job::StoreWithoutSyncs => check_store(&device.dir()),
        };
        match found {
            Ok(found) => {
                for thread in 0..THREADS {
                    let (before, after, found) = (before[thread], after[thread], found[thread]);
                    outcome.acknowledged += before - base[thread];
                    outcome.lost += before.saturating_sub(found);
                    outcome.in_flight += after - before;
                    outcome.in_flight_lost += after.saturating_sub(found.max(before));
                }
                base = found;
            }
            Err(text) => outcome.wrong.push(format!("cut {number}: {text}")),
        }
        device.unmount();
    }
    outcome
}

/// Every acknowledged `Disk` write survives; a store whose syncs are skipped is caught.
#[test]
fn no_power_cut_loses_an_acknowledged_write() {
    let cuts = from_env("SIEVE_POWER_CUTS", 0);
    if cuts == 0 {
        report("power cuts: 0 cuts: skipped, SIEVE_POWER_CUTS is not set");
        return;
    }
    if let Err(text) = enter_own_mounts() {
        report(&format!("power cuts: 0 cuts: skipped, {text}"));
        return;
    }
    let seed = seed("power cuts", 1);
    let only = from_env("SIEVE_POWER_CUTS_OF", String::new());
    let (mut skipped, mut wrong) = (0, Vec::new());
    for file_system in [EXT4, WRITEBACK, XFS, NEARLY_FULL] {
        if !only.is_empty() && file_system.name != only {
            continue;
        }
        if !file_system.can_be_made() {
            report(&format!("power cuts: {}: 0 cuts: skipped, no mkfs", file_system.name));
            skipped += 1;
            continue;
        }
        let mut lots = Rng::new(mix(seed));
        let outcome = cut(&file_system, Job::Store, cuts, &mut lots);
        outcome.report(file_system.name);
        if !outcome.is_good() {
            wrong.push(format!("{}: {outcome:?}", file_system.name));
        }
    }
    let mut lots = Rng::new(mix(seed));
    let plain = cut(&EXT4, Job::Plain, cuts, &mut lots);
    plain.report("ext4, control: a plain file, no store");
    let mut caught = 0;
    for _ in 0..CONTROL_CUTS {
        let control = cut(&EXT4, Job::StoreWithoutSyncs, 1, &mut lots);
        caught += usize::from(!control.is_good());
    }
    report(&format!(
        "power cuts: control with syncs skipped: caught {caught} of {CONTROL_CUTS}; {skipped} file \
         systems skipped"
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(caught > 0, "a store without syncs must lose writes, or the test is blind");
}

/// Runs in the child process.
#[test]
fn writer() {
    if let Some(job) = env::var_os(writer::JOB_VARIABLE) {
        let dir = env::var_os(writer::DIR_VARIABLE).unwrap();
        let counters = env::var_os(writer::COUNTERS_VARIABLE).unwrap();
        writer::run(job.to_str().unwrap(), Path::new(&dir), Path::new(&counters));
    }
}
