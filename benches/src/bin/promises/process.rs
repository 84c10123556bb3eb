//! Runs a measurement in a process of its own.

use std::{
    error::Error,
    fs,
    io::{self, Write as _},
    path::Path,
    process::Command,
};

use crate::{
    figure::{Figure, Measured},
    measurements,
    scale::Scale,
};

/// Measures in this process and prints the figures as JSON.
pub(crate) fn measure_here(topic: &str, name: &str, scale: &Scale) -> Result<(), Box<dyn Error>> {
    let all = measurements(topic).ok_or_else(|| format!("unknown topic: {topic}"))?;
    let measurement = all.iter().find(|measurement| measurement.name == name);
    let measurement = measurement.ok_or_else(|| format!("unknown measurement: {name}"))?;
    let figures = (measurement.measure)(scale)?;
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &figures)?;
    writeln!(out)?;
    Ok(())
}

/// Measures in a process that runs `binary`.
pub(crate) fn measure_in(binary: &Path, topic: &str, name: &str, small: bool) -> Measured {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["measure", topic, name, "--directory"]).arg(directory.path());
    if small {
        command.arg("--small");
    }
    let output = command.output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("measurement {name} failed ({}): {stderr}", output.status).into());
    }
    Ok(serde_json::from_slice::<Vec<Figure>>(&output.stdout)?)
}

/// Largest resident memory of this process so far, in bytes.
pub(crate) fn peak_resident_bytes() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("/proc/self/status has no VmHWM")?.trim().parse::<u64>()? << 10)
}

/// Writes `bytes` into the file at `path`.
#[expect(clippy::disallowed_methods, reason = "a report, not a file of a store")]
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}
