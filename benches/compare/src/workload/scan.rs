//! Full scans.

use sievedb_workload::clock::now;

use super::{
    digest::{self, Digest},
    meter::Meter,
};
use crate::{
    contestant::{Engine, Order},
    failure::Result,
    page_cache::PageCache,
    settings::Settings,
};

/// Maximum number of scans: their percentiles matter little.
const SCANS_MAX: u64 = 100;

/// Scans until time is up, at least once. Entries must be `want`, and in order.
pub(crate) fn run<E: Engine>(
    engine: &E,
    order: Order,
    want: Digest,
    settings: &Settings,
    page_cache: Option<&PageCache>,
    meter: &mut Meter,
) -> Result<()> {
    let entries = usize::try_from(want.entries)?;
    let start = now();
    for _ in 0..SCANS_MAX {
        let mut digest = Digest::default();
        meter.batch(entries, || engine.scan(order, |key, value| digest.add(key, value)))?;
        digest.check(want)?;
        if let Some(page_cache) = page_cache {
            meter.apart(|| page_cache.empty())?;
        }
        if start.elapsed().as_secs_f64() > settings.seconds_max {
            break;
        }
    }
    meter.stop()?;
    // Checking the order takes time, so the timed scans omit it.
    digest::check(engine, order, want)
}
