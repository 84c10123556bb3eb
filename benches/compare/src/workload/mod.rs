//! The workloads, generic over the engine.

mod changes;
mod contains;
mod digest;
mod load;
mod lookups;
mod meter;
mod model;
mod operations;
pub(crate) mod scale;
mod scan;
mod settle;
mod short_scan;
mod sync_write;
pub(crate) mod tombstones;
pub(crate) mod writer;
mod ycsb;
mod zipf;

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use sievedb_workload::{
    clock::now,
    random::{Random, mix},
};

use self::{
    changes::{Change, Changes},
    contains::Contains,
    digest::Digest,
    lookups::{Asked, Lookups},
    meter::Meter,
    model::Model,
    operations::{Limit, Operations, drive},
    settle::settle,
    short_scan::ShortScans,
    writer::{WRITES_PER_SECOND, Writer},
    ycsb::{Mix, Ycsb},
};
use crate::{
    case::Workload,
    contestant::{Engine, Order, Reader as _, Tuning},
    failure::Result,
    figures::{Figures, Measurement},
    keys::Keys,
    page_cache::PageCache,
    place::Place,
    process::{Memory, space_bytes},
    settings::Settings,
    task::Task,
};

/// The warm-up has one operation per this many measured ones.
const WARM_UP_SHARE: u64 = 4;

/// Maximum time to fill a cache, as a multiple of the measured time.
const FILL_SECONDS_SHARE: f64 = 30.0;

/// Name of the figure: data blocks requested from the engine's cache, per operation.
pub(crate) const DATA_BLOCK_REQUESTS: &str = "data_block_requests";

/// Name of the figure: tombstones left in tables at the end.
pub(crate) const TOMBSTONES: &str = "tombstones";

/// Name of the figure: time of the first lookup after the store was opened.
const FIRST_HIT_NS: &str = "first_hit_ns";

/// Runs a task. Fails if an answer is wrong. Returns `None` for a peer, whose figures another
/// process reports.
pub(crate) fn run<E: Engine>(task: &Task, tuning: Tuning) -> Result<Option<Measurement>> {
    let settings = &task.settings;
    let place = match task.peer {
        Some(number) => Place::of_peer(task, number),
        None => Place::of(task)?,
    };
    let page_cache =
        settings.drop_page_cache.then(|| PageCache::new(place.path(), settings.total_bytes));
    let mut model = Model::of(task);
    page_cache.as_ref().map_or(Ok(()), PageCache::sync_and_empty)?;
    let mut meter = Meter::new();
    let before = Memory::now()?;
    let start = now();
    let engine = if task.case.workload == Workload::Open {
        meter.start()?;
        meter.batch(1, || E::open(place.path(), tuning, settings))?
    } else {
        E::open(place.path(), tuning, settings)?
    };
    let open = start.elapsed();
    meter.stop()?;

    let (more, memory) = (Vec::new(), None);
    let mut session = Session { engine: &engine, task, page_cache, meter, memory, more };
    if let (Some(_), Some(asked)) = (task.peer, asked(task.case.workload)) {
        session.warm_up(&mut model)?;
        scale::serve(&engine, asked, task)?;
        return Ok(None);
    }
    let settle = session.work(&mut model)?;
    session.stop()?;
    let shape = engine.shape()?;
    if let Some(tombstones) = engine.tombstones() {
        session.more.push((TOMBSTONES, tombstones as f64));
    }
    if task.case.workload == Workload::Load {
        load::check(&engine, settings)?;
    }
    let Session { meter, memory, more, .. } = session;
    drop(engine);
    let after = memory.unwrap_or(before);

    let less = |after: u64, before: u64| after.saturating_sub(before) as f64;
    let figures = Figures {
        total_bytes: settings.total_bytes as f64,
        memory_peak_bytes: less(after.peak, before.resident),
        memory_bytes: less(after.resident, before.resident),
        memory_anonymous_bytes: less(after.anonymous, before.anonymous),
        space_bytes: space_bytes(place.path())? as f64,
        open_ms: open.as_secs_f64() * 1e3,
        settle_ms: settle.as_secs_f64() * 1e3,
        more: more.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect(),
        ..meter.figures()
    };
    let Task { contestant, case, round, .. } = *task;
    Ok(Some(Measurement { contestant, case, round, shape, figures }))
}

/// Returns the keys of a workload of single lookups.
fn asked(workload: Workload) -> Option<Asked> {
    match workload {
        Workload::Hit | Workload::ScaleHit => Some(Asked::Present),
        Workload::HitZipf => Some(Asked::PresentZipf),
        Workload::Miss | Workload::ScaleMiss => Some(Asked::Absent),
        Workload::MissWhileWriting => Some(Asked::AbsentNow),
        Workload::MixedWhileWriting => Some(Asked::MixedNow),
        _ => None,
    }
}

/// Returns the mix of a YCSB workload.
fn ycsb_mix(workload: Workload) -> Option<Mix> {
    match workload {
        Workload::YcsbA => Some(Mix::A),
        Workload::YcsbB => Some(Mix::B),
        Workload::YcsbC => Some(Mix::C),
        Workload::YcsbD => Some(Mix::D),
        Workload::YcsbE => Some(Mix::E),
        Workload::YcsbF => Some(Mix::F),
        _ => None,
    }
}

/// An open store and its measurements.
struct Session<'a, E> {
    engine: &'a E,
    task: &'a Task,
    page_cache: Option<PageCache>,
    meter: Meter,
    /// Memory at the end of the measurement, before checks that use memory too.
    memory: Option<Memory>,
    /// Figures of some workloads only.
    more: Vec<(&'static str, f64)>,
}

impl<E: Engine> Session<'_, E> {
    /// Ends the measurement, unless it has ended.
    fn stop(&mut self) -> Result<()> {
        self.meter.stop()?;
        if self.memory.is_none() {
            self.memory = Some(Memory::now()?);
        }
        Ok(())
    }

    /// Runs the workload. Returns the time until the store was idle.
    fn work(&mut self, model: &mut Model) -> Result<Duration> {
        let settings = &self.task.settings;
        let rest = || settle(settings.settle_window_ms);
        match self.task.case.workload {
            Workload::Load => {
                load::load(self.engine, settings, &mut self.meter)?;
                self.meter.stop()?;
                return Ok(rest());
            }
            Workload::LoadSingle => return self.change(Change::Load, model),
            Workload::LoadAscending => return self.change(Change::LoadAscending, model),
            Workload::Overwrite => return self.change(Change::Overwrite, model),
            Workload::Delete => return self.change(Change::Delete, model),
            Workload::SyncWrite => {
                let threads = self.task.case.threads;
                sync_write::run(self.engine, threads, settings, &mut self.meter)?;
                return Ok(Duration::ZERO);
            }
            Workload::Tombstones => {
                self.more = tombstones::run(self.engine, settings, &mut self.meter)?;
                return Ok(Duration::ZERO);
            }
            Workload::Open => {
                let (key, want) = Keys::new(settings.seed).entry(0);
                let mut value = [0; _];
                let before = now();
                let found = self.engine.reader()?.get(&key, &mut value)?;
                self.more.push((FIRST_HIT_NS, before.elapsed().as_nanos() as f64));
                lookups::check_value(&key, found.then_some(&value), Some(&want))?;
                return Ok(Duration::ZERO);
            }
            _ => {}
        }
        let loaded = self.warm_up(model)?;
        let settle = rest();
        let blocks_before = self.engine.data_block_requests();
        self.meter.start()?;
        self.read(model, loaded)?;
        self.stop()?;
        if let (Some(before), Some(after)) = (blocks_before, self.engine.data_block_requests()) {
            let per_operation = (after - before) as f64 / self.meter.operations_all() as f64;
            self.more.push((DATA_BLOCK_REQUESTS, per_operation));
        }
        Ok(settle)
    }

    /// Warms up with a part of the operations, unmeasured. First reads all data if the total holds
    /// them; else runs all lookups with the page cache, to fill the engine's cache. Returns the
    /// digest of the loaded data.
    fn warm_up(&mut self, model: &mut Model) -> Result<Digest> {
        let settings = &self.task.settings;
        let mut loaded = Digest::default();
        let scans = matches!(self.task.case.workload, Workload::Scan | Workload::ScanBack);
        if scans || self.page_cache.is_none() {
            let keys = Keys::new(settings.seed);
            loaded = Digest::of((0..settings.keys).map(|index| keys.entry(index)));
        }
        if self.page_cache.is_none() {
            digest::check(self.engine, Order::Ascending, loaded)?;
        }
        let measured = std::mem::replace(&mut self.meter, Meter::new());
        if let (Some(asked), Some(page_cache)) = (asked(self.task.case.workload), &self.page_cache)
        {
            let reader = self.engine.reader()?;
            let mut operations = Lookups::new(asked, reader, self.random(2), settings);
            let seconds = settings.seconds_max * FILL_SECONDS_SHARE;
            let limit = Limit { operations: settings.lookups, seconds };
            drive(&mut operations, limit, None, &mut self.meter)?;
            page_cache.empty()?;
        }
        let done = match asked(self.task.case.workload) {
            Some(asked) => self.look_up(asked, settings.lookups / WARM_UP_SHARE, 0),
            // Writes would change the store, so the warm-up only reads.
            None if ycsb_mix(self.task.case.workload).is_some() => {
                self.look_up(Asked::PresentZipf, settings.lookups / WARM_UP_SHARE, 0)
            }
            None if self.task.case.workload == Workload::ShortScan => {
                self.scan_short(model, settings.lookups / WARM_UP_SHARE)
            }
            None => Ok(()),
        };
        self.meter = measured;
        done.map(|()| loaded)
    }

    /// Runs the measured operations of a workload on a loaded store.
    fn read(&mut self, model: &mut Model, loaded: Digest) -> Result<()> {
        let settings = &self.task.settings;
        let workload = self.task.case.workload;
        match workload {
            Workload::Contains => self.contains(0.0),
            Workload::ContainsHalf => self.contains(0.5),
            Workload::Scan | Workload::ScanBack => {
                let descending = workload == Workload::ScanBack;
                let order = if descending { Order::Descending } else { Order::Ascending };
                let (page_cache, meter) = (self.page_cache.as_ref(), &mut self.meter);
                scan::run(self.engine, order, loaded, settings, page_cache, meter)
            }
            Workload::ShortScan => self.scan_short(model, settings.lookups),
            Workload::MissWhileWriting => self.look_up_while_writing(Asked::AbsentNow),
            Workload::MixedWhileWriting => self.look_up_while_writing(Asked::MixedNow),
            Workload::ScaleHit | Workload::ScaleMiss => {
                let asked = asked(workload).unwrap_or(Asked::Present);
                // `scale` starts the counters itself.
                self.meter.stop()?;
                self.more = scale::run(self.engine, asked, self.task, &mut self.meter)?;
                Ok(())
            }
            _ => match (asked(workload), ycsb_mix(workload)) {
                (Some(asked), _) => self.look_up(asked, settings.lookups, 1),
                (None, Some(mix)) => self.ycsb(mix, model),
                (None, None) => Err(format!("{} reads nothing", workload.title()).into()),
            },
        }
    }

    /// Runs up to `lookups` lookups. `part` distinguishes the warm-up from the measurement.
    fn look_up(&mut self, asked: Asked, lookups: u64, part: u64) -> Result<()> {
        let reader = self.engine.reader()?;
        let random = self.random(part);
        let operations = Lookups::new(asked, reader, random, &self.task.settings);
        self.drive(operations, lookups)
    }

    /// Runs lookups until time is up, while another thread writes.
    fn look_up_while_writing(&mut self, asked: Asked) -> Result<()> {
        let engine = self.engine;
        let writer = Writer::new(&self.task.settings);
        let (begun, stop) = (Barrier::new(2), AtomicBool::new(false));
        let per_second = thread::scope(|scope| {
            let writing = scope.spawn(|| writer.run(engine, &begun, &stop));
            begun.wait();
            let measured = self.look_up(asked, u64::MAX, 1);
            stop.store(true, Relaxed);
            let per_second = writing.join().map_err(|_| "the writer has panicked")?;
            measured.and(per_second)
        })?;
        self.more.push((WRITES_PER_SECOND, per_second));
        Ok(())
    }

    fn scan_short(&mut self, model: &Model, scans: u64) -> Result<()> {
        let (reader, random) = (self.engine.reader()?, self.random(scans));
        let operations = ShortScans::new(reader, model, random, &self.task.settings);
        self.drive(operations, scans)
    }

    fn contains(&mut self, present_share: f64) -> Result<()> {
        let settings = &self.task.settings;
        let keys = settings.lookups;
        let mut random = self.random(1);
        let contains = Contains { present_share, settings, keys };
        contains.run(self.engine, &mut random, self.page_cache.as_ref(), &mut self.meter)
    }

    fn ycsb(&mut self, mix: Mix, model: &mut Model) -> Result<()> {
        let settings = &self.task.settings;
        let random = self.random(1);
        let records = {
            let mut ycsb = Ycsb::new(mix, self.engine, model, random, settings.keys)?;
            let limit = Limit { operations: settings.lookups, seconds: settings.seconds_max };
            drive(&mut ycsb, limit, self.page_cache.as_ref(), &mut self.meter)?;
            ycsb.records()
        };
        self.stop()?;
        digest::check(self.engine, Order::Ascending, Digest::of(model.entries(records)))
    }

    /// Runs single writes. The time includes the flush at the end of a load.
    fn change(&mut self, change: Change, model: &mut Model) -> Result<Duration> {
        let settings = &self.task.settings;
        let load = matches!(change, Change::Load | Change::LoadAscending);
        let seconds = if load { settings.load_seconds_max } else { settings.seconds_max };
        let limit = Limit { operations: settings.keys, seconds };
        let seed = mix(settings.seed ^ self.task.round);
        let count = {
            let mut changes = Changes::new(change, self.engine, model, settings.keys, seed);
            self.meter.start()?;
            drive(&mut changes, limit, self.page_cache.as_ref(), &mut self.meter)?;
            changes.count()
        };
        if load {
            self.meter.together(0, || self.engine.flush())?;
        }
        self.stop()?;
        let settle = settle(settings.settle_window_ms);
        let want = match change {
            Change::Load => Digest::of(model.entries(count)),
            Change::LoadAscending => Digest::of((0..count).map(|number| {
                let key = Keys::ascending(number);
                (key, model.loaded(&key))
            })),
            Change::Overwrite | Change::Delete => Digest::of(model.entries(settings.keys)),
        };
        digest::check(self.engine, Order::Ascending, want)?;
        Ok(settle)
    }

    fn drive(&mut self, mut operations: impl Operations, count: u64) -> Result<()> {
        let limit = Limit { operations: count, seconds: self.task.settings.seconds_max };
        drive(&mut operations, limit, self.page_cache.as_ref(), &mut self.meter)
    }

    /// Returns a different order for each round, equal for all contestants.
    fn random(&self, part: u64) -> Random {
        let Settings { seed, .. } = self.task.settings;
        Random::new(mix(seed ^ self.task.round ^ part << 32))
    }
}
