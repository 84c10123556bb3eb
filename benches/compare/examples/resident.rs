//! `resident`: peak resident memory of a store with another allocator than that of the system.
//!
//! ```sh
//! cargo run --release --no-default-features --features jemalloc --example resident -- 64
//! ```
//!
//! Loads four times the budget (MiB, the argument), compacts, and reads until the block cache is
//! full. Prints the peak of each phase. The bound is the budget and 8 MiB, for the program and what
//! the allocator holds. Without the feature `jemalloc` it measures the allocator of the system.

#![expect(clippy::print_stdout, reason = "a program of the command line")]

use std::{error::Error, fs, time::Duration};

use sievedb::Options;
use sievedb_workload::{clock::now, random::Random};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 100;
/// Memory that a process may use beyond the budget.
const ALLOWANCE_MIB: u64 = 8;
const READS_LAST: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "64".to_owned());
    let budget_mib: u64 = argument.parse()?;
    let folder = tempfile::tempdir()?;
    let db = Options::new().memory_budget(budget_mib * MIB).open(folder.path())?;
    let allocator = if cfg!(feature = "jemalloc") { "jemalloc" } else { "of the system" };
    println!("allocator {allocator}, budget {budget_mib} MiB");

    let entries = budget_mib * MIB * 4 / (8 + VALUE_BYTES as u64);
    let mut random = Random::new(1);
    for number in 0..entries {
        let mut value = [0; VALUE_BYTES];
        value.chunks_mut(8).for_each(|part| {
            let bytes = random.below(u64::MAX).to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        });
        db.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), value)?;
    }
    report("load", budget_mib)?;
    db.compact()?;
    report("compaction", budget_mib)?;
    let begun = now();
    while now() - begun < READS_LAST {
        let number = random.below(entries);
        db.get(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())?;
    }
    report("reads", budget_mib)
}

/// Prints the peak of resident memory so far.
fn report(phase: &str, budget_mib: u64) -> Result<(), Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak.and_then(|line| line.split_whitespace().next()).ok_or("VmHWM")?.parse()?;
    let bound = budget_mib + ALLOWANCE_MIB;
    let result = if kib <= bound * 1024 { "within" } else { "above" };
    println!("{phase:>10}: {:6.1} MiB resident at most, {result} {bound} MiB", kib as f64 / 1024.0);
    Ok(())
}
