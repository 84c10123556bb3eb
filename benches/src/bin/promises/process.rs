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
    field_bytes("/proc/self/status", "VmHWM:")
}

/// Forgets the peak: [`peak_resident_bytes`] counts from the present resident memory on.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel, not of a store")]
pub(crate) fn reset_peak_resident() -> Result<(), Box<dyn Error>> {
    fs::write("/proc/self/clear_refs", "5")
        .map_err(|error| format!("/proc/self/clear_refs: {error}").into())
}

/// The field `name` of a file of the kernel with one field in kB on each line, in bytes.
pub(crate) fn field_bytes(path: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or_else(|| format!("{path} has no {name}"))?.trim().parse::<u64>()? << 10)
}

/// Writes `bytes` into the file at `path`.
#[expect(clippy::disallowed_methods, reason = "a report, not a file of a store")]
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)
}
