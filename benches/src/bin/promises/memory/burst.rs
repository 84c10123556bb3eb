//! A burst of writes after a read-only phase.

use std::error::Error;

use sievedb::Options;
use sievedb_workload::{clock::now, random::Random};

use super::data::Data;
use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

const VALUE_BYTES: usize = 100;
/// Length of the read-only phase: as long as the block cache may take to grow.
const READ_SECONDS: f64 = 5.0;

/// Inserts of a burst.
#[derive(Debug, Default)]
struct Burst {
    inserts: u64,
    seconds: f64,
    longest_ms: f64,
}

/// Alternates stores that are read before the burst with stores that are not. All hold the same
/// data, and none has background work in flight when the burst begins.
pub(super) fn measure(scale: &Scale) -> Measured {
    let mut figures = Vec::new();
    for &budget_mib in if scale.small { &[32][..] } else { &[64, 256] } {
        let (mut after_reads, mut writes_only) = (Burst::default(), Burst::default());
        for (round, reads) in [false, true, true, false].into_iter().enumerate() {
            let path = format!("{budget_mib} {round}");
            let total = if reads { &mut after_reads } else { &mut writes_only };
            burst(scale, &path, budget_mib * MIB, reads, total)?;
        }
        let per_second = |burst: &Burst| burst.inserts as f64 / burst.seconds;
        let ratio = per_second(&after_reads) / per_second(&writes_only);
        let at = format!("at {budget_mib} MiB");
        figures.extend([
            Figure::new(
                format!("inserts/s after reads over those of writes only, {at}"),
                "",
                ratio,
            )
            .at_least(0.9),
            Figure::new(format!("longest insert after reads, {at}"), "ms", after_reads.longest_ms)
                .at_most(50.0),
            Figure::new(
                format!("longest insert of writes only, {at}"),
                "ms",
                writes_only.longest_ms,
            ),
            Figure::new(format!("inserts/s of writes only, {at}"), "", per_second(&writes_only)),
        ]);
    }
    Ok(figures)
}

/// Loads a store with 1.25 times the budget, reads if `reads`, and inserts for some seconds.
fn burst(
    scale: &Scale,
    name: &str,
    budget: u64,
    reads: bool,
    total: &mut Burst,
) -> Result<(), Box<dyn Error>> {
    let db = Options::new().memory_budget(budget).open(scale.directory.join(name))?;
    let keyspaces = [db.default_keyspace().clone()];
    let mut data = Data::of(budget / 4 * 5, VALUE_BYTES);
    data.load(&keyspaces)?;
    db.wait_for_background()?;
    if reads {
        data.read(&keyspaces, READ_SECONDS, 0, &mut Random::new(20))?;
    }
    let seconds = if scale.small { 3.0 } else { 10.0 };
    let begun = now();
    let mut before = begun;
    for number in data.entries.. {
        let (key, value) = data.entry(number);
        db.insert(key, value)?;
        let after = now();
        // Generating the entry is part of it, and takes less than a microsecond.
        let insert_ms = (after - before).as_secs_f64() * 1e3;
        total.longest_ms = total.longest_ms.max(insert_ms);
        total.inserts += 1;
        before = after;
        if (after - begun).as_secs_f64() >= seconds {
            break;
        }
    }
    total.seconds += begun.elapsed().as_secs_f64();
    Ok(())
}
