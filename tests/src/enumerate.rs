//! All crashes of a workload.
//!
//! A workload runs once on a disk with a journal. Then the disk crashes after each operation, in
//! several ways, and each state is opened and checked. A tenth of the states crash again during or
//! after the first recovery.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use sievedb_doubles::{Loss, MemoryFs};

use crate::{
    case::{Case, Cut},
    check::{Opening, check_second, check_state, guarded},
    history::History,
    model::Model,
    recorder::Recorder,
    rng::{Rng, mix},
    settings::{from_env, report},
    workload::Workload,
};

/// Extent of an enumeration.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Random losses at each operation; every second one tears writes.
    pub random: usize,
    /// Maximum number of unsynced operations that are lost alone, at each operation.
    pub alone_max: usize,
    /// One of this many states has second cuts.
    pub second_every: usize,
    /// Number of second cuts of such a state.
    pub second_cuts: usize,
    /// Chooses random losses and second cuts.
    pub seed: u64,
}

impl Extent {
    /// Returns the default extent. `SIEVE_LONG=1` loses each unsynced operation alone, doubles the
    /// random losses, and takes four times as many states with second cuts. `SIEVE_CRASH_RANDOM`
    /// and `SIEVE_CRASH_SECOND` set the numbers of random losses and second cuts.
    #[must_use]
    pub fn usual(seed: u64) -> Self {
        let is_long = from_env("SIEVE_LONG", 0) == 1;
        Self {
            random: from_env("SIEVE_CRASH_RANDOM", if is_long { 4 } else { 2 }),
            alone_max: if is_long { usize::MAX } else { 4 },
            second_every: if is_long { 10 } else { 40 },
            second_cuts: from_env("SIEVE_CRASH_SECOND", 10),
            seed,
        }
    }
}

/// An illegal state after a crash.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The case that reproduces it.
    pub case: Option<Case>,
    /// Description of the violation.
    pub message: String,
    /// Operations of the disk.
    pub trace: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message)?;
        if let Some(case) = &self.case {
            writeln!(f, "run it alone with SIEVE_CASE='{case}'")?;
        }
        write!(f, "{}", self.trace)
    }
}

/// Runs a workload without a crash.
///
/// # Errors
///
/// If the store fails without a crash.
pub fn record(workload: &Workload, opening: &Opening) -> Result<Recorder, Violation> {
    let recorded = guarded(|| {
        let disk = Arc::new(MemoryFs::new());
        let options = opening(Arc::clone(&disk));
        let mut recorder = Recorder::new(disk, options, Model::default());
        (workload.run)(&mut recorder);
        recorder.release_all();
        recorder.check();
        recorder.close();
        Ok(recorder)
    });
    recorded.map_err(|message| Violation {
        case: None,
        message: format!("workload {} without a crash: {message}", workload.name),
        trace: String::new(),
    })
}

/// Crashes a workload in every way within `extent`. Returns the number of checked states.
///
/// # Errors
///
/// The first violation.
pub fn enumerate(
    workload: &Workload,
    opening: &Opening,
    extent: &Extent,
) -> Result<usize, Violation> {
    let recorder = record(workload, opening)?;
    let run = Run { workload, opening, extent, recorder: &recorder };
    let mut states = 0;
    for at in 0..=recorder.disk().operations() {
        for loss in run.losses(recorder.disk(), at, extent.random) {
            states += run.check(Cut { at, loss }, states)?;
        }
    }
    Ok(states)
}

/// Runs one case.
///
/// # Errors
///
/// Its violation.
pub fn run_case(workload: &Workload, opening: &Opening, case: &Case) -> Result<(), Violation> {
    let recorder = record(workload, opening)?;
    let extent =
        Extent { random: 0, alone_max: 0, second_every: usize::MAX, second_cuts: 0, seed: 0 };
    let run = Run { workload, opening, extent: &extent, recorder: &recorder };
    let (disk, history) = run.first(case.cut)?;
    case.second.map_or(Ok(()), |second| run.second(case.cut, &disk, &history, second))
}

struct Run<'a> {
    workload: &'a Workload,
    opening: &'a Opening,
    extent: &'a Extent,
    recorder: &'a Recorder,
}

impl Run<'_> {
    fn losses(&self, disk: &MemoryFs, at: usize, random: usize) -> Vec<Loss> {
        let unsynced = disk.unsynced(at);
        if unsynced == 0 {
            return vec![Loss::Nothing];
        }
        let mut losses = vec![Loss::Nothing, Loss::Everything];
        let seed = mix(self.extent.seed ^ mix(at as u64));
        // With a single unsynced operation, this equals losing everything.
        if unsynced > 1 {
            let step = unsynced.div_ceil(self.extent.alone_max.max(1));
            let first = Rng::new(seed).below(step);
            losses.extend((first..unsynced).step_by(step).map(Loss::Alone));
        }
        let lots = (0..random as u64)
            .map(|lot| Loss::Random { seed: mix(seed.wrapping_add(lot)), torn: lot % 2 == 0 });
        losses.extend(lots);
        losses
    }

    /// Checks the cut with this number, and its second cuts.
    fn check(&self, cut: Cut, number: usize) -> Result<usize, Violation> {
        let (disk, history) = self.first(cut)?;
        if !number.is_multiple_of(self.extent.second_every) {
            return Ok(1);
        }
        let mut lots = Rng::new(mix(self.extent.seed ^ mix(number as u64)));
        for _ in 0..self.extent.second_cuts {
            let at = lots.below(disk.operations() + 1);
            let loss = *lots.pick(&self.losses(&disk, at, 2));
            self.second(cut, &disk, &history, Cut { at, loss })?;
        }
        Ok(1 + self.extent.second_cuts)
    }

    fn first(&self, cut: Cut) -> Result<(Arc<MemoryFs>, History), Violation> {
        let original = self.recorder.disk();
        let disk = Arc::new(original.crash(cut.at, &cut.loss));
        let checked = check_state(self.opening, &disk, self.recorder.history(), cut);
        let history = checked.map_err(|message| Violation {
            case: Some(self.case(cut, None)),
            message: format!("workload {}: {message}", self.workload.name),
            trace: original.trace(cut.at, &cut.loss),
        })?;
        Ok((disk, history))
    }

    fn second(
        &self,
        cut: Cut,
        disk: &MemoryFs,
        history: &History,
        second: Cut,
    ) -> Result<(), Violation> {
        let crashed = disk.crash(second.at, &second.loss);
        let checked = check_second(self.opening, crashed, history, second);
        checked.map_err(|message| Violation {
            case: Some(self.case(cut, Some(second))),
            message: format!("workload {}, second crash: {message}", self.workload.name),
            trace: format!(
                "{}and then\n{}",
                self.recorder.disk().trace(cut.at, &cut.loss),
                disk.trace(second.at, &second.loss)
            ),
        })
    }

    fn case(&self, cut: Cut, second: Option<Cut>) -> Case {
        Case { workload: self.workload.name.to_owned(), cut, second }
    }
}

/// Runs `work` for each item on two threads. Returns the results in the order of the items.
pub fn on_two_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let other = scope.spawn(take);
        let mut done = take();
        done.extend(other.join().expect("work catches its panics"));
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Reports the results of a sweep: its cases, what they count, and the violations. Returns the sum
/// of the counts.
///
/// # Panics
///
/// If there is a violation. The message has the first `SIEVE_SHOWN` of them, by default 10.
#[must_use]
pub fn verdict<C: Into<usize>, E: fmt::Display>(
    sweep: &str,
    counted: &str,
    results: Vec<Result<C, E>>,
) -> usize {
    let (cases, mut sum, mut wrong) = (results.len(), 0, Vec::new());
    for result in results {
        match result {
            Ok(count) => sum += count.into(),
            Err(violation) => wrong.push(violation.to_string()),
        }
    }
    let violations = wrong.len();
    report(&format!("{sweep}: {cases} cases, {sum} {counted}, {violations} violations"));
    wrong.truncate(from_env("SIEVE_SHOWN", 10));
    assert!(violations == 0, "{violations} violations, first ones:\n{}", wrong.join("\n\n"));
    sum
}
