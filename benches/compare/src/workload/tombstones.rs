//! A scan over many tombstones and one live key behind them.

use sievedb_workload::clock::now;

use super::{digest::Digest, load, meter::Meter, settle::settle};
use crate::{
    contestant::{Engine, Order},
    failure::Result,
    keys::{Key, Keys},
    settings::Settings,
};

/// Name of the figure: time of the same scan when background work is idle.
pub(crate) const SCAN_AT_REST_NS: &str = "scan_at_rest_ns";

/// Writes and flushes keys, removes all but the last one, flushes the removals, and scans.
pub(crate) fn run<E: Engine>(
    engine: &E,
    settings: &Settings,
    meter: &mut Meter,
) -> Result<Vec<(&'static str, f64)>> {
    let keys = Keys::new(settings.seed);
    let count = settings.tombstones + 1;
    load::write(engine, settings, count, &mut Meter::new())?;
    engine.flush()?;
    settle(settings.settle_window_ms);

    let all: Vec<Key> = (0..count).map(|index| keys.present(index)).collect();
    let live = *all.iter().max().ok_or("there is no key")?;
    let dead: Vec<Key> = all.into_iter().filter(|key| *key != live).collect();
    dead.chunks(settings.load_batch).try_for_each(|batch| engine.remove(batch))?;
    engine.flush()?;

    let want = Digest::of([(live, keys.value(&live))].into_iter());
    let scan = || {
        let mut digest = Digest::default();
        engine.scan(Order::Ascending, |key, value| digest.add(key, value))?;
        digest.check(want)
    };
    meter.start()?;
    meter.batch(1, scan)?;
    meter.stop()?;
    settle(settings.settle_window_ms);
    let before = now();
    scan()?;
    Ok(vec![(SCAN_AT_REST_NS, before.elapsed().as_nanos() as f64)])
}
