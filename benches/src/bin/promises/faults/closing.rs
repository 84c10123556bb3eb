//! Closing a store while a compaction runs.

use sievedb::{Durability, Options};
use sievedb_workload::{clock::now, random::Random};

use crate::{
    figure::{Figure, Measured},
    scale::{MIB, Scale},
};

const VALUE_BYTES: usize = 1_000;
const CLOSES: u64 = 10;

/// Writes up to 70 MiB, and drops the last handle ten times while compactions are due.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let mut random = Random::new(11);
    let mut value = vec![0; VALUE_BYTES];
    let mut longest_ms = 0_f64;
    let writes = scale.pick(70, 35) * MIB / VALUE_BYTES as u64 / CLOSES;
    for _ in 0..CLOSES {
        let db = Options::new().memory_budget(16 * MIB).open(scale.directory.join("db"))?;
        for _ in 0..writes {
            value.fill_with(|| random.next() as u8);
            db.insert(random.next().to_be_bytes(), &value)?;
        }
        db.persist(Durability::Disk)?;
        let begun = now();
        drop(db);
        longest_ms = longest_ms.max(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(vec![
        Figure::new("longest drop of the last handle, compactions due", "ms", longest_ms)
            .at_most(50.0),
    ])
}
