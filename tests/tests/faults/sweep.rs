//! A workload with one failing call.

use std::{fmt, sync::Arc};

use sievedb::{Durability, Options, fs::Fs};
use sievedb_doubles::{Call, Failure, Fault, FaultFs, Loss, MemoryFs, Operation, Times};
use sievedb_tests::{
    case::Cut,
    check::guarded,
    history::{CrashPoint, History},
    model::{DEFAULT, Model},
    recorder::Recorder,
    settings::small_options,
    workload::{Workload, workload},
};

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const ENOSPC: i32 = 28;

/// All calls except [`Call::SYNCS`].
const NOT_SYNCS: [Call; 16] = [
    Call::CreateDir,
    Call::List,
    Call::Exists,
    Call::Create,
    Call::OpenAppend,
    Call::Open,
    Call::Rename,
    Call::Unlink,
    Call::Link,
    Call::Lock,
    Call::LockShared,
    Call::Append,
    Call::Reserve,
    Call::Len,
    Call::ReadAt,
    Call::Map,
];

/// A workload and its failing call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) workload: &'static str,
    pub(crate) call: usize,
    pub(crate) errno: i32,
    pub(crate) times: Times,
    pub(crate) group: Group,
}

/// Groups of calls that fail and are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    All,
    /// Calls that need disk space.
    Growing,
    /// All except [`Call::SYNCS`].
    NoSyncs,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, call, errno, times, group } = self;
        let errno = match *errno {
            EIO => "EIO",
            ENOMEM => "ENOMEM",
            _ => "ENOSPC",
        };
        let times = if *times == Times::Once { "once" } else { "for-good" };
        let group = match group {
            Group::All => "",
            Group::Growing => ":growing",
            Group::NoSyncs => ":no-syncs",
        };
        write!(f, "{workload}@{call}:{errno}:{times}{group}")
    }
}

/// Numbers of calls of a workload without faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) all: usize,
    pub(crate) growing: usize,
    pub(crate) no_syncs: usize,
}

pub(crate) fn calls_of(workload: &Workload) -> Calls {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(disk.clone()));
    let mut recorder = Recorder::new(disk, small_options(faults.clone()), Model::default());
    (workload.run)(&mut recorder);
    recorder.close();
    let (mut growing, mut syncs) = (0, 0);
    for operation in recorder.disk().journal() {
        match operation {
            Operation::SyncData { .. } | Operation::SyncDir { .. } => syncs += 1,
            Operation::Unlink { .. } => {}
            _ => growing += 1,
        }
    }
    let all = faults.calls();
    Calls { all, growing, no_syncs: all - syncs }
}

/// Runs a trial. Returns whether a call failed.
///
/// # Errors
///
/// The violation.
pub(crate) fn run(trial: &Trial) -> Result<bool, String> {
    run_with(trial, small_options, small_options)
}

/// As [`run`], with these options until a crash, and then with those of `recovering`.
pub(crate) fn run_with(
    trial: &Trial,
    opening: impl Fn(Arc<dyn Fs>) -> Options,
    recovering: impl Fn(Arc<dyn Fs>) -> Options,
) -> Result<bool, String> {
    let disk = Arc::new(MemoryFs::new());
    let faults = Arc::new(FaultFs::new(Arc::clone(&disk) as Arc<dyn Fs>));
    let outcome = guarded(|| story(trial, &disk, &faults, &opening, &recovering));
    outcome.map_err(|text| {
        let first = faults.first_failure();
        let first = first.map_or("no call failed".to_owned(), |failure| failure.to_string());
        let trace = disk.trace(disk.operations(), &Loss::Nothing);
        format!("{trial}: {text}\n{first}\nrun it alone with SIEVE_FAULT='{trial}'\n{trace}")
    })
}

fn story(
    trial: &Trial,
    disk: &Arc<MemoryFs>,
    faults: &Arc<FaultFs>,
    opening: &impl Fn(Arc<dyn Fs>) -> Options,
    recovering: &impl Fn(Arc<dyn Fs>) -> Options,
) -> Result<bool, String> {
    faults.inject(trial.fault());
    let options = opening(Arc::clone(faults) as Arc<dyn Fs>);
    let mut recorder = Recorder::closed(Arc::clone(disk), options, Model::default());
    recorder.expect_failures();
    recorder.open();
    (workload(trial.workload).run)(&mut recorder);
    recorder.check();
    let struck = faults.failures() > 0;
    if !struck && !recorder.failures().is_empty() {
        return Err(format!("calls failed without a fault: {:?}", recorder.failures()));
    }

    faults.heal();
    let passing = trial.is_passing(&faults.failed_calls());
    recorder.expect_no_failures(!passing);
    if !recorder.is_open() {
        recorder.reopen();
    }
    recorder.check();
    recorder.insert_with(DEFAULT, "healed", 20, Durability::OsBuffer);
    recorder.insert_with(DEFAULT, "key0001", 20, Durability::Disk);
    recorder.flush();
    recorder.remove_with(DEFAULT, "healed", Durability::Disk);
    recorder.compact();
    recorder.insert_with(DEFAULT, "last", 20, Durability::Disk);
    recorder.check();

    crashes(disk, recorder.history(), recovering)?;
    recorder.expect_no_failures(false);
    recorder.reopen();
    crashes(disk, recorder.history(), recovering)?;
    recorder.insert_with(DEFAULT, "reopened", 20, Durability::Disk);
    recorder.compact();
    crashes(disk, recorder.history(), recovering)?;
    recorder.reopen();
    Ok(struck)
}

fn crashes(
    disk: &MemoryFs,
    history: &History,
    opening: &impl Fn(Arc<dyn Fs>) -> Options,
) -> Result<(), String> {
    for seed in 0..4 {
        let loss = match seed {
            0 => Loss::Everything,
            1 => Loss::Nothing,
            _ => Loss::Random { seed, torn: true },
        };
        crash(disk, history, loss, opening)?;
    }
    Ok(())
}

/// Cuts the power.
fn crash(
    disk: &MemoryFs,
    history: &History,
    loss: Loss,
    opening: &impl Fn(Arc<dyn Fs>) -> Options,
) -> Result<(), String> {
    let at = disk.operations();
    let left = Arc::new(disk.crash(at, &loss));
    let options = opening(Arc::clone(&left) as Arc<dyn Fs>);
    let crash = CrashPoint { at: usize::MAX, ..Cut { at, loss }.point() };
    let recovered = guarded(|| Recorder::recover(left, options, history, crash).map(drop));
    recovered.map_err(|text| format!("after a crash: {text}\n{}", disk.trace(at, &loss)))
}

impl Trial {
    fn fault(&self) -> Fault {
        // A failed append may write nothing, a part, or all.
        let written = [0, 5, usize::MAX][self.call % 3];
        let fault = Fault::new(self.errno, self.times).after(self.call).written_bytes(written);
        match self.group {
            Group::All => fault,
            Group::Growing => fault.calls(&Call::GROWING),
            Group::NoSyncs => fault.calls(&NOT_SYNCS),
        }
    }

    /// Returns whether the store must continue without a reopen: the disk was full or memory was
    /// short, this is over, and no sync failed.
    fn is_passing(&self, failed: &[Failure]) -> bool {
        let all_of = |calls: &[Call]| failed.iter().all(|failure| calls.contains(&failure.call));
        match self.errno {
            ENOMEM => all_of(&NOT_SYNCS),
            ENOSPC => all_of(&Call::GROWING),
            _ => false,
        }
    }
}
