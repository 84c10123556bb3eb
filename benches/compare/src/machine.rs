//! Machine, versions and date of a measurement.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::{
    failure::Result,
    process::{field, read},
};

/// The lock file from which this was compiled.
const LOCK: &str = include_str!("../Cargo.lock");

/// Conditions of a measurement besides the options.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// Of the last minute, before the measurement.
    pub(crate) load: String,
    pub(crate) compiler: String,
    /// UTC.
    pub(crate) date: String,
    pub(crate) versions: Vec<String>,
}

impl Machine {
    pub(crate) fn look() -> Result<Self> {
        let processors = read("/proc/cpuinfo")?;
        let of_processor = |name: &str| {
            let line = processors.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(':').nth(1)).unwrap_or("unknown").trim().to_owned()
        };
        let (name, family, model) =
            (of_processor("model name"), of_processor("cpu family"), of_processor("model\t"));
        let load = read("/proc/loadavg")?;
        Ok(Self {
            processor: format!("{name}, family {family}, model {model}"),
            cores: std::thread::available_parallelism()?.get(),
            memory_bytes: field(&read("/proc/meminfo")?, "MemTotal:")? * 1024,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            compiler: output("rustc", "--version").unwrap_or_else(|| "unknown".to_owned()),
            date: output("date", "-u +%Y-%m-%d %H:%M").unwrap_or_else(|| "unknown".to_owned()),
            versions: versions(),
        })
    }
}

/// Returns the output of a command with one or two arguments. The second may contain spaces.
fn output(command: &str, arguments: &str) -> Option<String> {
    let output = Command::new(command).args(arguments.splitn(2, ' ')).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns the compiled engines with their versions.
fn versions() -> Vec<String> {
    let compiled = [
        ("sievedb", true),
        ("rocksdb", cfg!(feature = "rocksdb")),
        ("librocksdb-sys", cfg!(feature = "rocksdb")),
        ("fjall", cfg!(feature = "fjall")),
        ("redb", cfg!(feature = "redb")),
        ("heed", cfg!(feature = "lmdb")),
        ("lmdb-master-sys", cfg!(feature = "lmdb")),
        ("sled", cfg!(feature = "sled")),
    ];
    let compiled = compiled.into_iter().filter(|(_, compiled)| *compiled);
    compiled.filter_map(|(name, _)| Some(format!("{name} {}", version(name)?))).collect()
}

/// Returns the version of a package in the lock file.
fn version(name: &str) -> Option<&'static str> {
    let head = format!("name = \"{name}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != head);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_the_lock_file() {
        assert_eq!(version("sievedb"), Some(env!("CARGO_PKG_VERSION")));
        assert_eq!(version("no-such-engine"), None);
        assert!(versions().len() <= 8 && versions()[0].starts_with("sievedb "));
    }

    #[test]
    fn machine_is_described() {
        let machine = Machine::look().unwrap();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 28);
        assert!(machine.date.starts_with("20"), "{}", machine.date);
        assert!(!machine.processor.starts_with("unknown"), "{}", machine.processor);
    }
}
