//! All kills of a workload, with power cuts after the restart.
//!
//! A killed process leaves synced and unsynced writes on the disk. If the next process takes them
//! for durable, a power cut reveals it.

use std::sync::Arc;

use sievedb::{Durability, fs::Fs};
use sievedb_doubles::{Fault, FaultFs, Loss, MemoryFs, Times};

use crate::{
    case::Cut,
    check::guarded,
    history::CrashPoint,
    model::{DEFAULT, Model},
    recorder::Recorder,
    rng::{Rng, mix},
    settings::small_options,
    workload::Workload,
};

/// Error of every call after the kill (`EIO`).
const DEAD: i32 = 5;

/// Power cuts after each restart.
const CUTS: usize = 8;

/// Kills the process at each `every`-th call of the file system in `workload`. Returns the number
/// of checked states.
///
/// # Errors
///
/// The violation.
pub fn kill_everywhere(workload: &Workload, every: usize, seed: u64) -> Result<usize, String> {
    let mut states = 0;
    for call in (0..).step_by(every) {
        let kill = Kill { workload, call, seed };
        match kill.run()? {
            0 => break,
            more => states += more,
        }
    }
    Ok(states)
}

struct Kill<'a> {
    workload: &'a Workload,
    call: usize,
    seed: u64,
}

impl Kill<'_> {
    /// Returns the number of checked states; 0 if the workload ends before the kill.
    fn run(&self) -> Result<usize, String> {
        let Self { workload, call, seed } = self;
        let disk = Arc::new(MemoryFs::with_seed(*seed));
        guarded(|| self.story(&disk)).map_err(|text| {
            let trace = disk.trace(disk.operations(), &Loss::Nothing);
            format!(
                "workload {}, killed at call {call}: {text}\nSIEVE_SEED={seed} repeats it\n{trace}",
                workload.name
            )
        })
    }

    fn story(&self, disk: &Arc<MemoryFs>) -> Result<usize, String> {
        let mut lots = Rng::new(mix(self.seed ^ mix(self.call as u64)));
        let faults = Arc::new(FaultFs::new(Arc::clone(disk) as Arc<dyn Fs>));
        // The call in flight may write all, some or no bytes.
        let written = *lots.pick(&[0, 5, 700, usize::MAX]);
        let fault = Fault::new(DEAD, Times::ForGood).after(self.call).written_bytes(written);
        faults.inject(fault);
        let options = small_options(Arc::clone(&faults) as Arc<dyn Fs>);
        let mut killed = Recorder::closed(Arc::clone(disk), options, Model::default());
        killed.expect_failures();
        killed.open();
        (self.workload.run)(&mut killed);
        killed.close();
        if faults.failures() == 0 {
            return Ok(0);
        }

        let restarted_at = disk.operations();
        let options = small_options(Arc::clone(disk) as Arc<dyn Fs>);
        let end = CrashPoint { at: usize::MAX, survives: Durability::OsBuffer };
        let mut next = Recorder::recover(Arc::clone(disk), options, killed.history(), end)?;
        next.number_values_from(1 << 32);
        let opened_at = disk.operations();
        next.insert_with(DEFAULT, "a", 40, Durability::Disk);
        if lots.chance(1, 4) {
            next.compact();
        }
        next.close();

        for _ in 0..CUTS {
            let at = restarted_at + lots.below(disk.operations() - restarted_at + 1);
            let loss = if lots.chance(1, 2) {
                Loss::Everything
            } else {
                Loss::Random { seed: lots.number(), torn: lots.chance(1, 2) }
            };
            let left = Arc::new(disk.crash(at, &loss));
            let options = small_options(Arc::clone(&left) as Arc<dyn Fs>);
            let cut = Cut { at, loss };
            let recovered = if at < opened_at {
                let point = CrashPoint { at: usize::MAX, survives: Durability::Disk };
                guarded(|| Recorder::recover(left, options, killed.history(), point))
            } else {
                guarded(|| Recorder::recover(left, options, next.history(), cut.point()))
            };
            recovered.map_err(|text| {
                format!("restarted at {restarted_at}, then {}: {text}", disk.trace(at, &loss))
            })?;
        }
        Ok(1 + CUTS)
    }
}
