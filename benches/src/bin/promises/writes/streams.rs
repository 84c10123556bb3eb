//! Long values written and read piece by piece: peak memory.

use std::{
    error::Error,
    io::{self, Read},
};

use sievedb::Options;
use sievedb_workload::random::Random;

use crate::{
    figure::{Figure, Measured},
    process::{field_bytes, peak_resident_bytes, reset_peak_resident},
    scale::{MIB, RESIDENT_ALLOWANCE_MIB, Scale, mib},
};

/// Memory of the store, in bytes.
const BUDGET_BYTES: u64 = 64 * MIB;

/// Measures one value after a shorter one, which allocates what stays.
pub(crate) fn measure(scale: &Scale) -> Measured {
    let db = Options::new().memory_budget(BUDGET_BYTES).open(scale.directory.join("db"))?;
    let write = |bytes: u64| -> Result<(), Box<dyn Error>> {
        Ok(db.insert_reader(bytes.to_be_bytes(), Noise::new(bytes).take(bytes), bytes)?)
    };
    let read = |bytes: u64| -> Result<(), Box<dyn Error>> {
        let reader = db.get_reader(bytes.to_be_bytes())?.ok_or("the value is missing")?;
        expect_same(reader, Noise::new(bytes).take(bytes))
    };
    write(MIB)?;
    read(MIB)?;
    let bytes = scale.pick(64, 16) * MIB;
    let (written, found) = (peak_of(|| write(bytes))?, peak_of(|| read(bytes))?);
    let figure = |call: &str, peak: f64| {
        let name =
            format!("{call} of {} MiB: peak of resident memory above that before", mib(bytes));
        Figure::new(name, "MiB", peak).at_most(RESIDENT_ALLOWANCE_MIB)
    };
    Ok(vec![figure("insert_reader", written), figure("get_reader", found)])
}

/// Returns the peak of resident memory while `run` runs, above that before, in MiB.
fn peak_of(run: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    reset_peak_resident()?;
    let before = field_bytes("/proc/self/status", "VmRSS:")?;
    run()?;
    Ok(mib(peak_resident_bytes()?.saturating_sub(before)))
}

/// Endless bytes that do not compress.
struct Noise {
    random: Random,
    word: [u8; 8],
    used: usize,
}

impl Noise {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), word: [0; 8], used: 8 }
    }
}

impl Read for Noise {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *to {
            if self.used == self.word.len() {
                (self.word, self.used) = (self.random.next().to_le_bytes(), 0);
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
        Ok(to.len())
    }
}

fn expect_same(mut found: impl Read, mut want: impl Read) -> Result<(), Box<dyn Error>> {
    let (mut left, mut right) = ([0; 8192], [0; 8192]);
    loop {
        let count = found.read(&mut left)?;
        want.read_exact(&mut right[..count])?;
        if left[..count] != right[..count] {
            return Err("the value differs".into());
        }
        if count == 0 {
            return if want.read(&mut right)? == 0 {
                Ok(())
            } else {
                Err("the value is short".into())
            };
        }
    }
}
