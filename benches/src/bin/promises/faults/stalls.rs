//! The longest insert of tiny entries at the least budget.

use sievedb::Options;
use sievedb_workload::{clock::now, random::Random};

use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

const BUDGET_MIB: u64 = 8;

/// Inserts entries of 9 bytes at 8 MiB one by one, half of them in ascending order.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let db = Options::new().memory_budget(BUDGET_MIB * MIB).open(scale.directory.join("db"))?;
    let mut random = Random::new(8);
    let mut longest_ms = 0_f64;
    for number in 0..scale.pick(5_000_000, 500_000) {
        let key = if number % 2 == 0 { random.next() } else { number };
        let begun = now();
        db.insert(key.to_be_bytes(), b"v")?;
        longest_ms = longest_ms.max(begun.elapsed().as_secs_f64() * 1e3);
    }
    let name = format!("longest insert, tiny entries at {BUDGET_MIB} MiB");
    Ok(vec![Figure::new(name, "ms", longest_ms).at_most(250.0)])
}
