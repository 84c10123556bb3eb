//! The budget of a store that is opened without options.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use sievedb::Db;

use crate::{
    figure::{Figure, Measured},
    process::field_bytes,
    scale::{MIB, Scale, mib},
};

/// The default is this part of the memory, within the bounds.
const PART_OF_MEMORY: u64 = 8;
const BUDGET_MIN: u64 = 64 * MIB;
const BUDGET_MAX: u64 = 1_024 * MIB;

/// Opens a store without options, and compares its budget with the memory of the machine.
pub(super) fn measure(scale: &Scale) -> Measured {
    let db = Db::open(scale.directory.join("db"))?;
    let budget = db.stats().memory.budget_bytes;
    let available = available_bytes()?;
    let want = (available / PART_OF_MEMORY).clamp(BUDGET_MIN, BUDGET_MAX);
    let deviation = (budget as f64 / want as f64 - 1.0).abs() * 100.0;
    Ok(vec![
        Figure::new("default budget", "MiB", mib(budget)),
        Figure::new("1/8 of the memory, from 64 MiB to 1 GiB", "MiB", mib(want)),
        Figure::new("deviation of the default budget from it", "%", deviation).at_most(1.0),
    ])
}

/// Physical memory, or the limit of a control group that this process is in, if that is less.
fn available_bytes() -> Result<u64, Box<dyn Error>> {
    let mut available = field_bytes("/proc/meminfo", "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) {
        let root = Path::new("/sys/fs/cgroup");
        let mut directory: PathBuf = root.join(group);
        // A group is also bound by the limits of the groups that it is in.
        while directory.starts_with(root) {
            let limit = fs::read_to_string(directory.join("memory.max")).unwrap_or_default();
            // "max" if there is no limit.
            available = available.min(limit.trim().parse().unwrap_or(u64::MAX));
            directory.pop();
        }
    }
    Ok(available)
}
