//! Output of a benchmark's report.

use std::io::Write;

use serde::Serialize;

use crate::error::Result;

/// Writes `report` as JSON if `json` is set, else as the text that `table` returns.
pub(crate) fn write_report<R: Serialize>(
    out: &mut dyn Write,
    report: &R,
    json: bool,
    table: impl FnOnce(&R) -> String,
) -> Result<()> {
    if json {
        let json = serde_json::to_string_pretty(report).expect("a report is valid JSON");
        writeln!(out, "{json}")?;
    } else {
        write!(out, "{}", table(report))?;
    }
    Ok(())
}
