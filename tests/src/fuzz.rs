//! Random histories with several faults, crashes and failed recoveries.
//!
//! A run alternates between an open and a closed store. While the store is open, random calls of
//! the file system fail. The store is then closed or killed. Power cuts at random operations are
//! checked on copies of the disk. Then the run continues on the same disk or after a cut. Recovery
//! itself is killed or fails, up to three times in a row.

mod failures;
mod flip;

use std::{
    ops::{AddAssign, Bound},
    sync::Arc,
};

use sievedb::{Db, Durability, Options, fs::Fs};
use sievedb_doubles::{Call, Fault, FaultFs, Loss, MemoryFs, Times};

use self::failures::follows_from;
use crate::{
    case::Cut,
    check::guarded,
    history::{CrashPoint, History},
    model::{Change, DEFAULT, Model},
    recorder::Recorder,
    rng::{Rng, mix},
    settings::{STORE_DIR, small_keyspace, small_options},
};

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Keyspaces that are created and dropped, besides the default one.
const OTHERS: [&str; 2] = ["other", "users"];

/// Values of a checked state have numbers above those of its run.
const VALUES_OF_CHECKS: u64 = 1 << 32;

/// Counters of a fuzzer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Disk states that were opened and checked.
    pub states: usize,
    /// Failed calls of the file system.
    pub failures: usize,
    /// Recoveries that were killed or failed.
    pub recoveries: usize,
    /// Logs in which a byte was flipped after a clean close.
    pub flips: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.states += other.states;
        self.failures += other.failures;
        self.recoveries += other.recoveries;
        self.flips += other.flips;
    }
}

/// Adds planted bugs to the random options of a run.
pub type Planting = dyn Fn(Options) -> Options + Send + Sync;

/// Runs the history of `seed`. With `flips`, also damages logs after clean closes.
///
/// # Errors
///
/// The first violation.
pub fn fuzz(seed: u64, flips: bool, planting: &Planting) -> Result<Counts, String> {
    let mut run = Run {
        lots: Rng::new(mix(seed)),
        disk: Arc::new(MemoryFs::with_seed(seed)),
        history: History::new(Model::default()),
        point: CrashPoint { at: usize::MAX, survives: Durability::Disk },
        counts: Counts::default(),
        flips,
        planting,
        log: Vec::new(),
    };
    let outcome = guarded(|| run.story());
    outcome.map(|()| run.counts).map_err(|text| {
        let trace = run.disk.trace(run.disk.operations(), &Loss::Nothing);
        format!("{text}\nSIEVE_FUZZ={seed} runs it alone\n{}\n{trace}", run.log.join("\n"))
    })
}

/// A closed or killed store with its history.
struct Run<'a> {
    lots: Rng,
    disk: Arc<MemoryFs>,
    history: History,
    /// Crash point of `history`.
    point: CrashPoint,
    counts: Counts,
    flips: bool,
    planting: &'a Planting,
    /// Events, for the message of a violation.
    log: Vec<String>,
}

impl Run<'_> {
    fn story(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.lots.below(4) {
            self.fail_recoveries()?;
            self.live()?;
        }
        let (disk, loss) = (self.disk.copy(), Loss::Nothing);
        self.check(disk, self.point).map_err(|text| self.at(self.disk.operations(), loss, &text))
    }

    fn options(&mut self, fs: Arc<dyn Fs>) -> Options {
        let keyspace = small_keyspace().memtable_bytes(*self.lots.pick(&[4 << 10, 16 << 10]));
        let options = small_options(fs)
            .log_segment_bytes(*self.lots.pick(&[4 << 10, 4 << 10, 8 << 10]))
            .open_files_max(*self.lots.pick(&[1, 4]))
            .log_compression(self.lots.chance(1, 2))
            .keyspace(keyspace);
        (self.planting)(options)
    }

    /// Injects a fault, or the same one several times in a row.
    fn inject(&mut self, faults: &FaultFs) {
        const OPENS: [Call; 3] = [Call::Create, Call::Open, Call::OpenAppend];
        const NAMES: [Call; 3] = [Call::Rename, Call::Unlink, Call::SyncDir];
        let errno = *self.lots.pick(&[EIO, ENOSPC, ENOSPC, EMFILE]);
        let times = if self.lots.chance(1, 6) { Times::ForGood } else { Times::Once };
        let after_max = *self.lots.pick(&[2, 10, 60]);
        let mut fault = Fault::new(errno, times).after(self.lots.below(after_max));
        match self.lots.below(7) {
            0 => fault = fault.calls(&Call::GROWING),
            1..=3 => fault = fault.calls(&[Call::Append]),
            4 => fault = fault.calls(&OPENS),
            5 => fault = fault.calls(if self.lots.chance(1, 2) { &NAMES } else { &Call::SYNCS }),
            _ => {}
        }
        fault = fault.suffix(*self.lots.pick(&["", "", ".log", ".log", ".sst", ".tmp"]));
        let repeated = if self.lots.chance(1, 2) { 1 + self.lots.below(2) } else { 0 };
        for _ in 0..1 + repeated {
            let written = *self.lots.pick(&[0, 5, 700]);
            let fault = fault.clone().written_bytes(written);
            let fault = if self.lots.chance(1, 2) { fault.carried_out() } else { fault };
            self.log.push(format!("inject {fault:?}"));
            faults.inject(fault);
        }
    }

    /// Opens the store, writes while calls fail, ends it, and cuts the power of copies.
    fn live(&mut self) -> Result<(), String> {
        let faults = Arc::new(FaultFs::new(Arc::clone(&self.disk) as Arc<dyn Fs>));
        let options = self.options(Arc::clone(&faults) as Arc<dyn Fs>);
        let from = self.disk.operations();
        let disk = Arc::clone(&self.disk);
        let mut recorder = Recorder::recover(disk, options, &self.history, self.point)?;
        recorder.number_values_from(self.lots.number() >> 32 << 16);
        recorder.expect_failures();
        let opened = self.disk.operations();
        for _ in 0..2 {
            if opened > from {
                let at = from + 1 + self.lots.below(opened - from);
                let loss = self.loss(at);
                let survives = Cut { at, loss }.point().survives.max(self.point.survives);
                self.cut(at, loss, CrashPoint { survives, ..self.point })?;
            }
        }
        self.log.push(format!("opened after {opened} operations"));
        for _ in 0..self.lots.below(4) {
            self.inject(&faults);
        }
        for _ in 0..4 + self.lots.below(30) {
            self.operation(&mut recorder, &faults)?;
        }
        if self.lots.chance(1, 4) {
            self.fill_disk(&mut recorder, &faults);
        }
        self.counts.failures += faults.failures();
        self.log.extend(faults.failed_calls().iter().map(ToString::to_string));
        if self.lots.chance(1, 2) {
            faults.heal();
        }
        let closed = match self.lots.below(3) {
            0 => {
                faults.heal();
                faults.inject(Fault::new(EIO, Times::ForGood));
                recorder.close();
                self.log.push("killed".to_owned());
                false
            }
            _ => recorder.close_and_report(),
        };
        self.log.push(format!("ended, closed: {closed}"));
        if faults.failures() == 0 && !recorder.failures().is_empty() {
            return Err(format!("calls failed without a fault: {:?}", recorder.failures()));
        }
        self.history = recorder.history().clone();
        let operations = self.disk.operations();
        for _ in 0..4 {
            let back = *self.lots.pick(&[1, 6, 30, operations - opened + 1]);
            let at = operations - self.lots.below(back.min(operations - opened + 1));
            let loss = self.loss(at);
            self.cut(at, loss, Cut { at, loss }.point())?;
        }
        // Continues with this disk or with one after a cut.
        let survives = if closed { Durability::Memory } else { Durability::OsBuffer };
        self.point = CrashPoint { at: usize::MAX, survives };
        if closed && self.flips {
            self.flip()?;
        }
        if self.lots.chance(1, 3) {
            let loss = self.loss(operations);
            self.lose(loss);
        }
        Ok(())
    }

    /// Flushes everything, then makes the disk full for the log: one append fails, then the
    /// creation of the next segment.
    fn fill_disk(&mut self, recorder: &mut Recorder, faults: &FaultFs) {
        faults.heal();
        recorder.flush();
        for _ in 0..2 {
            let written = *self.lots.pick(&[0, 5, usize::MAX]);
            let fault = Fault::new(ENOSPC, Times::Once).calls(&[Call::Append]).suffix(".log");
            let fault = fault.written_bytes(written);
            self.log.push(format!("flushed, inject {fault:?}"));
            faults.inject(fault);
            let change = self.change(recorder);
            recorder.write(vec![change], Durability::Disk);
        }
    }

    /// Kills recoveries or makes their calls fail; the next one finds their partial results.
    fn fail_recoveries(&mut self) -> Result<(), String> {
        for _ in 0..self.lots.below(4) {
            let faults = Arc::new(FaultFs::new(Arc::clone(&self.disk) as Arc<dyn Fs>));
            let killed = self.lots.chance(1, 2);
            if killed {
                let written = *self.lots.pick(&[0, 5, 700, usize::MAX]);
                let after = self.lots.below(40);
                faults.inject(Fault::new(EIO, Times::ForGood).after(after).written_bytes(written));
                self.log.push(format!("recovery killed at call {after}"));
            } else {
                for _ in 0..1 + self.lots.below(3) {
                    self.inject(&faults);
                }
            }
            let opened = self.options(Arc::clone(&faults) as Arc<dyn Fs>).open(STORE_DIR);
            let failures = faults.failed_calls();
            match opened {
                Ok(db) => drop(db),
                Err(error) if follows_from(&error, &failures) => {}
                Err(error) => return Err(format!("recovery failed by itself: {error:?}")),
            }
            self.log.push("recovery ended".to_owned());
            self.counts.recoveries += 1;
            self.counts.failures += failures.len();
            self.log.extend(failures.iter().map(ToString::to_string));
            let at = self.disk.operations();
            let loss = self.loss(at);
            let survives = Cut { at, loss }.point().survives.max(self.point.survives);
            self.cut(at, loss, CrashPoint { survives, ..self.point })?;
            if self.lots.chance(1, 3) {
                let loss = self.loss(at);
                self.lose(loss);
            }
        }
        Ok(())
    }

    /// Replaces the disk by the result of a crash.
    fn lose(&mut self, loss: Loss) {
        let at = self.disk.operations();
        self.log.push(self.disk.trace(at, &loss));
        self.disk = Arc::new(self.disk.crash(at, &loss));
        let survives = Cut { at, loss }.point().survives;
        self.point.survives = self.point.survives.max(survives);
    }

    fn loss(&mut self, at: usize) -> Loss {
        let seed = self.lots.number();
        match (self.lots.below(6), self.disk.unsynced(at)) {
            (0, _) => Loss::Nothing,
            (1, _) => Loss::Everything,
            (2 | 3, unsynced) if unsynced > 0 => Loss::Alone(self.lots.below(unsynced)),
            (lot, _) => Loss::Random { seed, torn: lot % 2 == 0 },
        }
    }

    fn cut(&mut self, at: usize, loss: Loss, point: CrashPoint) -> Result<(), String> {
        let left = self.disk.crash(at, &loss);
        self.check(left, point).map_err(|text| self.at(at, loss, &text))
    }

    fn at(&self, at: usize, loss: Loss, text: &str) -> String {
        format!("{text}\n{}", self.disk.trace(at, &loss))
    }

    /// Opens `left`, compares it with the history, and reopens it.
    fn check(&mut self, left: MemoryFs, point: CrashPoint) -> Result<(), String> {
        self.counts.states += 1;
        let left = Arc::new(left);
        let options = self.options(Arc::clone(&left) as Arc<dyn Fs>);
        let goes_on = self.lots.below(8);
        let history = &self.history;
        guarded(|| {
            let mut recorder = Recorder::recover(Arc::clone(&left), options, history, point)?;
            recorder.number_values_from(VALUES_OF_CHECKS);
            match goes_on {
                0 => recorder.compact(),
                1..=3 => recorder.insert_with(DEFAULT, "a", 40, Durability::Disk),
                _ => {}
            }
            recorder.reopen();
            let orphans = orphans(recorder.db(), &left);
            if orphans > 0 {
                return Err(format!("{orphans} tables that no manifest names"));
            }
            recorder.close();
            Ok(())
        })
    }

    fn operation(&mut self, recorder: &mut Recorder, faults: &FaultFs) -> Result<(), String> {
        match self.lots.below(40) {
            0..=17 => {
                let change = self.change(recorder);
                let durability = self.durability();
                recorder.write(vec![change], durability);
            }
            18..=25 => {
                let changes = (0..1 + self.lots.below(8)).map(|_| self.change(recorder)).collect();
                let durability = self.durability();
                recorder.write(changes, durability);
            }
            26 => {
                let durability = self.durability();
                recorder.persist(durability);
            }
            27 | 28 => recorder.flush(),
            29 => recorder.compact(),
            30 => recorder.wait_for_background(),
            31 | 32 => recorder.create(self.lots.pick::<&str>(&OTHERS)),
            33 => {
                let name = *self.lots.pick::<&str>(&OTHERS);
                if self.lots.chance(1, 2) {
                    recorder.drop_keyspace(name);
                } else {
                    recorder.clear(name);
                }
            }
            34 => recorder.check(),
            35 | 36 => {
                self.inject(faults);
            }
            37 => self.retry_flush(recorder, faults)?,
            _ => {
                self.log.push("healed".to_owned());
                faults.heal();
            }
        }
        Ok(())
    }

    /// Flushes several times. Tables of failed flushes must not accumulate, unless unlinking fails.
    fn retry_flush(&mut self, recorder: &mut Recorder, faults: &FaultFs) -> Result<(), String> {
        let tables_max = 2 * (1 + OTHERS.len());
        let unlinks_failed = || {
            let failed = faults.failed_calls();
            failed.iter().filter(|it| it.call == Call::Unlink && !it.carried_out).count()
        };
        let before = orphans(recorder.db(), &self.disk);
        let unlinks_before = unlinks_failed();
        for _ in 0..8 {
            recorder.flush();
        }
        let kept_max = before + unlinks_failed() - unlinks_before;
        let added = orphans(recorder.db(), &self.disk).saturating_sub(kept_max);
        if added > tables_max {
            return Err(format!("eight flushes left {added} tables that no version names"));
        }
        Ok(())
    }

    fn durability(&mut self) -> Durability {
        *self.lots.pick(&[Durability::Memory, Durability::OsBuffer, Durability::Disk])
    }

    fn change(&mut self, recorder: &mut Recorder) -> Change {
        let name = *self.lots.pick(&OTHERS);
        let name = if recorder.handle(name).is_some() { name } else { DEFAULT };
        let keyspace = if self.lots.chance(1, 2) { DEFAULT } else { name }.into();
        let key = format!("key{:02}", self.lots.below(24)).into();
        if self.lots.chance(1, 5) {
            return Change::Remove { keyspace, key };
        }
        if self.lots.chance(1, 24) {
            let end = format!("key{:02}", self.lots.below(24)).into();
            let range = (Bound::Included(key), Bound::Excluded(end));
            return Change::RemoveRange { keyspace, range };
        }
        let bytes_max = *self.lots.pick(&[30, 30, 300, 1500]);
        let value = recorder.new_value(self.lots.below(bytes_max));
        Change::Put { keyspace, key, value }
    }
}

/// Returns the number of non-empty table files that the open store does not use.
fn orphans(db: &Db, disk: &MemoryFs) -> usize {
    let named: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.tables).sum();
    let files = disk.contents();
    files
        .iter()
        .filter(|(path, bytes)| path.ends_with(".sst") && !bytes.is_empty())
        .count()
        .saturating_sub(named as usize)
}
