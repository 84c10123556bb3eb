//! Resident memory of the process against the budget.

use sievedb::Options;

use crate::{
    crawler::crawl,
    figure::{Figure, Measured},
    process::peak_resident_bytes,
    scale::{MIB, RESIDENT_ALLOWANCE_MIB, Scale, mib},
};

const BUDGET_MIB: u64 = 32;

/// Runs a crawler at 32 MiB: `contains_many` of a batch of URLs, then an insert of the absent ones.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let db = Options::new().memory_budget(BUDGET_MIB * MIB).open(scale.directory.join("db"))?;
    let urls = scale.pick(2_000_000, 200_000);
    crawl(&db, urls, |_| Ok(()))?;
    Ok(vec![
        Figure::new("resident at 32 MiB, crawler", "MiB", mib(peak_resident_bytes()?))
            .at_most(BUDGET_MIB as f64 + RESIDENT_ALLOWANCE_MIB),
    ])
}
