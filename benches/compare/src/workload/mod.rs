//! The workloads, generic over the engine.

mod contains;
mod load;
mod lookups;
mod meter;
mod settle;
mod writer;

use std::{
    fs,
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

use self::{lookups::Asked, meter::Meter, writer::Writer};
use crate::{
    contestant::{Engine, Tuning},
    failure::Result,
    figures::Measurement,
    keys::Keys,
    process::{Memory, space_bytes},
    task::{Task, Workload},
};

/// Share of the lookups that are done once before any is measured.
const WARM_UP_SHARE: u64 = 4;

/// Does a task. Fails if an answer is wrong.
pub(crate) fn run<E: Engine>(task: &Task, tuning: Tuning) -> Result<Measurement> {
    if task.workload == Workload::Load {
        empty(task)?;
    }
    let start = now();
    let engine = E::open(&task.path, tuning, &task.settings)?;
    let open = start.elapsed();
    let mut meter = Meter::new();
    let settle = if task.workload == Workload::Load {
        load::load(&engine, task, &mut meter)?;
        settle::settle()
    } else {
        read(&engine, task, &mut meter)?
    };
    meter.stop()?;
    let shape = engine.shape()?;
    let memory = Memory::now()?;
    if task.workload == Workload::Load {
        load::check(&engine, task)?;
    }
    drop(engine);

    let mut figures = meter.figures();
    figures.memory_peak_bytes = memory.peak as f64;
    figures.memory_bytes = memory.resident as f64;
    figures.memory_anonymous_bytes = memory.anonymous as f64;
    figures.space_bytes = space_bytes(&task.path)? as f64;
    figures.open_ms = open.as_secs_f64() * 1e3;
    figures.settle_ms = settle.as_secs_f64() * 1e3;
    let Task { contestant, workload, round, .. } = *task;
    Ok(Measurement { contestant, workload, round, shape, figures })
}

/// Warms the store up, and reads from it. Returns how long it took to come to rest before.
fn read<E: Engine>(engine: &E, task: &Task, meter: &mut Meter) -> Result<Duration> {
    let settings = &task.settings;
    let entries = engine.scan()?;
    if entries < settings.keys {
        return Err(format!("a scan finds {entries} of {} keys", settings.keys).into());
    }
    // Another order in each round, the same for all contestants.
    let mut random = Random::new(mix(settings.seed ^ task.round));
    let mut warm_up = Meter::new();
    let warm_up_lookups = settings.lookups / WARM_UP_SHARE;
    measure(engine, task, &mut random, &mut warm_up, warm_up_lookups)?;
    let settle = settle::settle();
    meter.start()?;
    if task.workload != Workload::MissWhileWriting {
        measure(engine, task, &mut random, meter, settings.lookups)?;
        return Ok(settle);
    }

    let writer = Writer::new(Keys::new(settings.seed), task);
    let (begun, stop) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let writing = scope.spawn(|| writer.run(engine, &begun, &stop));
        begun.wait();
        // For as long as a workload may last.
        let measured = measure(engine, task, &mut random, meter, u64::MAX);
        stop.store(true, Relaxed);
        meter.writes_per_second = writing.join().map_err(|_| "the writer has panicked")??;
        measured
    })?;
    Ok(settle)
}

/// Up to `lookups` lookups of the task's kind.
fn measure<E: Engine>(
    engine: &E,
    task: &Task,
    random: &mut Random,
    meter: &mut Meter,
    lookups: u64,
) -> Result<()> {
    let lookup = |asked| lookups::Lookups { asked, settings: &task.settings, lookups };
    let contains = |present_share| contains::Contains {
        present_share,
        settings: &task.settings,
        keys: lookups,
    };
    match task.workload {
        Workload::Load => unreachable!("a load looks nothing up"),
        Workload::Hit => lookup(Asked::Present).run(engine, random, meter),
        Workload::Miss => lookup(Asked::Absent).run(engine, random, meter),
        Workload::Contains => contains(0.0).run(engine, random, meter),
        Workload::ContainsHalf => contains(0.5).run(engine, random, meter),
        Workload::MissWhileWriting => lookup(Asked::AbsentNow).run(engine, random, meter),
    }
}

/// Removes what a former round has left.
#[expect(clippy::disallowed_methods, reason = "these are files of other engines too")]
fn empty(task: &Task) -> Result<()> {
    if task.path.exists() {
        fs::remove_dir_all(&task.path)?;
    }
    Ok(fs::create_dir_all(&task.path)?)
}
