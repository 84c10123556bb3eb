//! Bytes that flushes and compactions write for each byte flushed.

use sievedb::Options;

use super::{MIB, resident::crawl};
use crate::{
    figure::{Figure, Measured},
    scale::Scale,
};

/// Crawls 2 million URLs at five budgets, and counts what flushes and compactions wrote.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let urls = scale.pick(2_000_000, 300_000);
    let mut figures = Vec::new();
    for (budget_mib, bound) in [(8, None), (16, None), (32, Some(5.0)), (64, None), (256, None)] {
        let path = scale.directory.join(budget_mib.to_string());
        let db = Options::new().memory_budget(budget_mib * MIB).open(path)?;
        crawl(&db, urls)?;
        db.flush()?;
        db.wait_for_background()?;
        let stats = db.stats();
        let flushed = stats.background.flush_bytes_written as f64;
        let rewritten = stats.background.compaction_bytes_written as f64;
        let name = format!("bytes rewritten per byte flushed at {budget_mib} MiB");
        let figure = Figure::new(name, "", rewritten / flushed);
        figures.push(match bound {
            Some(bound) => figure.at_most(bound),
            None => figure,
        });
        let stalled = stats.writes.stalled_us as f64 / 1e6;
        figures.push(Figure::new(format!("stalled at {budget_mib} MiB"), "s", stalled));
    }
    Ok(figures)
}
