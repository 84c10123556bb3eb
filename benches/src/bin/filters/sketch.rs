//! The count-min sketch, in a separate table because it is no filter.

use std::hint::black_box;

use serde::Serialize;
use sievedb_filter::standalone::CountMinSketch;
use sievedb_workload::random::{Random, mix};

use crate::{
    Common,
    known::{self, Figure},
    measure::{median, ns},
    text,
};

/// The error bound as a share of all insertions, except for a share [`DELTA`] of the keys.
const EPSILON: f64 = 1e-4;
const DELTA: f64 = 0.01;

/// Keys are ranked from 1 to `2^OCTAVES - 1`; octaves of ranks are equally likely, so that key
/// number r has a share of about 1 / r (Zipf), as requests have.
const OCTAVES: u64 = 20;

const INSERTIONS: usize = 4_000_000;
const SMALL: usize = 20;

/// Measurements of the sketch.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sketch {
    insertions: usize,
    keys: usize,
    bytes: usize,
    insert_ns: f64,
    estimate_ns: f64,
    /// Maximum excess of an estimate.
    bound: f64,
    mean_error: f64,
    /// Share of the keys whose estimate is above the bound.
    above_bound: f64,
}

/// Counts a skewed stream.
///
/// # Errors
///
/// Returns an error if an estimate is too low, or too many exceed the bound.
pub(crate) fn measure(common: &Common, rounds: usize) -> Result<Sketch, String> {
    let insertions = if common.small { INSERTIONS / SMALL } else { INSERTIONS };
    let mut random = Random::new(common.seed);
    let ranks: Vec<usize> = (0..insertions)
        .map(|_| {
            let octave = random.below(OCTAVES);
            // Below 2^20.
            ((1 << octave) + random.below(1 << octave)) as usize
        })
        .collect();
    let stream: Vec<u64> = ranks.iter().map(|&rank| mix(rank as u64)).collect();
    let mut truth = vec![0_u32; 1 << OCTAVES];
    for &rank in &ranks {
        truth[rank] += 1;
    }

    let (mut insert, mut estimate) = (Vec::new(), Vec::new());
    let mut sketch = CountMinSketch::with_error(EPSILON, DELTA);
    for _ in 0..rounds {
        sketch.clear();
        let count = || {
            for &hash in &stream {
                black_box(sketch.insert_hash(hash));
            }
        };
        insert.push(ns(count, 1, insertions));
        let ask = || {
            black_box(
                stream.iter().map(|&hash| u64::from(sketch.estimate_hash(hash))).sum::<u64>(),
            );
        };
        estimate.push(ns(ask, 1, insertions));
    }

    let (mut keys, mut errors, mut above) = (0, 0.0, 0);
    for (rank, &truth) in truth.iter().enumerate().filter(|(_, truth)| **truth > 0) {
        let estimate = sketch.estimate_hash(mix(rank as u64));
        let Some(error) = estimate.checked_sub(truth) else {
            return Err(format!("CountMinSketch: {estimate} instead of {truth}"));
        };
        keys += 1;
        errors += f64::from(error);
        above += usize::from(f64::from(error) > sketch.error_bound());
    }
    let above_bound = above as f64 / keys as f64;
    if above_bound > DELTA {
        return Err(format!("CountMinSketch: {above} of {keys} estimates are above the bound"));
    }
    Ok(Sketch {
        insertions,
        keys,
        bytes: (sketch.width() * u64::from(sketch.depth()) * 4) as usize, // It is in memory.
        insert_ns: median(insert),
        estimate_ns: median(estimate),
        bound: sketch.error_bound(),
        mean_error: errors / keys as f64,
        above_bound,
    })
}

pub(crate) fn table(sketch: &Sketch) -> String {
    let figures = [
        Figure::new("mean error of an estimate", "", format!("{:.2}", sketch.mean_error)),
        Figure::new(
            "estimates above the bound",
            format!("at most {}", text::per_cent(DELTA)),
            text::per_cent(sketch.above_bound),
        ),
        Figure::new("insertion", "", format!("{:.1} ns", sketch.insert_ns)),
        Figure::new("estimate", "", format!("{:.1} ns", sketch.estimate_ns)),
    ];
    let [insertions, keys] =
        [sketch.insertions, sketch.keys].map(|count| text::count(count as u64));
    format!(
        "CountMinSketch of {}, {insertions} insertions of {keys} keys, bound {:.0}:\n\n{}",
        text::bytes(sketch.bytes as f64),
        sketch.bound,
        known::table(&figures),
    )
}
