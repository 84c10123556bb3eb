//! Bytes that compactions write for each byte flushed.

use sievedb::{Db, Options};

use crate::{
    crawler::crawl,
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

/// Crawls 2 million URLs at five budgets with the default workers, and counts what compactions
/// wrote.
///
/// The fast writer never waits for compactions, so each of them takes many runs. The slow writer
/// waits for them after each batch, so each of them takes the fewest runs.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let urls = scale.pick(2_000_000, 300_000);
    let mut figures = Vec::new();
    for (budget_mib, bound) in [(8, None), (16, None), (32, Some(5.0)), (64, None), (256, None)] {
        for writer in ["fast", "slow"] {
            let path = scale.directory.join(format!("{budget_mib} {writer}"));
            let db = Options::new().memory_budget(budget_mib * MIB).open(path)?;
            let wait = |db: &Db| db.wait_for_background();
            match writer {
                "slow" => crawl(&db, urls, wait)?,
                _ => crawl(&db, urls, |_| Ok(()))?,
            }
            db.flush()?;
            db.wait_for_background()?;
            let stats = db.stats();
            let flushed = stats.background.flush_bytes_written as f64;
            let rewritten = stats.background.compaction_bytes_written as f64;
            let at = format!("at {budget_mib} MiB, {writer} writer");
            let name = format!("bytes rewritten per byte flushed {at}");
            let figure = Figure::new(name, "", rewritten / flushed);
            figures.push(match bound {
                Some(bound) => figure.at_most(bound),
                None => figure,
            });
            let stalled = stats.writes.stalled_us as f64 / 1e6;
            figures.push(Figure::new(format!("stalled {at}"), "s", stalled));
            let runs: u64 = stats.levels.iter().map(|level| level.runs).sum();
            figures.push(Figure::new(format!("sorted runs at the end {at}"), "", runs as f64));
        }
    }
    Ok(figures)
}
