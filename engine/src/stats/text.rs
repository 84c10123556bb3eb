//! Statistics as text.

use std::fmt;

use super::{LevelStats, MemoryStats, Stats};
use crate::text::{bytes, counted};

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:.1} s, sequence {}, {} of {}",
            self.open_for.as_secs_f64(),
            self.last_sequence,
            counted(self.log_segments, ["log segment", "log segments"]),
            bytes(self.log_bytes)
        )?;
        writeln!(f, "memory: {}", self.memory)?;
        let lookups = &self.lookups;
        writeln!(
            f,
            "lookups: {}, {} found in memtables, {} asked, {} said no; {} of tables ({})",
            lookups.lookups,
            lookups.found_in_memtables,
            counted(lookups.memtable_probes, ["memtable filter", "memtable filters"]),
            lookups.memtable_negatives,
            counted(self.table_reads.calls, ["read", "reads"]),
            bytes(self.table_reads.bytes)
        )?;
        self.fmt_levels(f)?;
        for keyspace in &self.keyspaces {
            writeln!(
                f,
                "keyspace {:?}: {}, {}, {}, {}",
                keyspace.name,
                counted(keyspace.runs, ["run", "runs"]),
                counted(keyspace.tables, ["table", "tables"]),
                bytes(keyspace.table_bytes),
                counted(keyspace.entries, ["entry", "entries"])
            )?;
            writeln!(f, "  {}", keyspace.options)?;
        }
        if self.tables_with_unusable_filters > 0 {
            let filters = counted(self.tables_with_unusable_filters, ["filter", "filters"]);
            writeln!(f, "{filters} cannot be used")?;
        }
        if self.filters_not_whole > 0 {
            let filters = counted(self.filters_not_whole, ["filter is", "filters are"]);
            writeln!(f, "{filters} not whole in memory")?;
        }
        if let Some(cause) = &self.read_only {
            writeln!(f, "read-only: {cause}")?;
        }
        Ok(())
    }
}

impl Stats {
    /// A table of what each level holds, one of what lookups did there, and one of scans if there were
    /// any that asked filters.
    fn fmt_levels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = self.levels.iter().enumerate();
        let mut rows: Vec<(String, LevelStats)> = numbered
            .filter(|(_, level)| level.tables > 0 || level.candidates > 0)
            .map(|(number, level)| (number.to_string(), *level))
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        rows.push(("total".to_owned(), self.total()));
        table(f, &rows, &HELD)?;
        table(f, &rows, &LOOKUPS)?;
        if rows.iter().any(|(_, level)| asked_by_scans(level)) {
            table(f, &rows, &SCANS)?;
        }
        Ok(())
    }
}

fn asked_by_scans(level: &LevelStats) -> bool {
    level.prefix_probes + level.prefix_unusable + level.range_probes + level.range_unusable > 0
}

/// A column: its head, and how a level is written in it.
type Column = (&'static str, fn(&LevelStats) -> String);

const HELD: [Column; 8] = [
    ("runs", |level| level.runs.to_string()),
    ("tables", |level| level.tables.to_string()),
    ("size", |level| bytes(level.bytes)),
    ("entries", |level| level.entries.to_string()),
    ("filters", |level| bytes(level.filter_bytes)),
    ("of whole", |level| bytes(level.filter_bytes_whole)),
    ("not whole", |level| level.filters_not_whole.to_string()),
    ("unusable", |level| level.tables_with_unusable_filters.to_string()),
];

const LOOKUPS: [Column; 11] = [
    ("candidates", |level| level.candidates.to_string()),
    ("probes", |level| level.filter_probes().to_string()),
    ("negatives", |level| level.filter_negatives.to_string()),
    ("true pos.", |level| level.filter_true_positives.to_string()),
    ("false pos.", |level| level.filter_false_positives.to_string()),
    ("measured", |level| percent(level.filter_fpr_measured())),
    ("expected", |level| percent(level.filter_fpr_expected_of_probes())),
    ("reads saved", |level| level.reads_saved().to_string()),
    ("unusable", |level| level.filter_unusable.to_string()),
    ("not resident", |level| level.filter_not_resident.to_string()),
    ("data blocks", |level| level.data_block_requests.to_string()),
];

const SCANS: [Column; 6] = [
    ("prefix probes", |level| level.prefix_probes.to_string()),
    ("negatives", |level| level.prefix_negatives.to_string()),
    ("unusable", |level| level.prefix_unusable.to_string()),
    ("range probes", |level| level.range_probes.to_string()),
    ("negatives", |level| level.range_negatives.to_string()),
    ("unusable", |level| level.range_unusable.to_string()),
];

fn percent(rate: f64) -> String {
    format!("{:.4} %", rate * 100.0)
}

/// Writes rows under the heads of their columns, all flush right.
fn table(
    f: &mut fmt::Formatter<'_>,
    rows: &[(String, LevelStats)],
    columns: &[Column],
) -> fmt::Result {
    let cells: Vec<Vec<String>> = columns
        .iter()
        .map(|(_, cell)| rows.iter().map(|(_, level)| cell(level)).collect())
        .collect();
    let width_of = |((head, _), cells): (&Column, &Vec<String>)| {
        cells.iter().map(String::len).max().unwrap_or(0).max(head.len())
    };
    let widths: Vec<usize> = columns.iter().zip(&cells).map(width_of).collect();
    write!(f, "level")?;
    for ((head, _), width) in columns.iter().zip(&widths) {
        write!(f, "  {head:>width$}")?;
    }
    writeln!(f)?;
    for (at, (name, _)) in rows.iter().enumerate() {
        write!(f, "{name:>5}")?;
        for (cells, width) in cells.iter().zip(&widths) {
            write!(f, "  {:>width$}", cells[at])?;
        }
        writeln!(f)?;
    }
    Ok(())
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memtables {} of {}, filters {} of {}, indexes {}, block cache {} of {}, writing {} of {}; \
             pinned by readers {}",
            bytes(self.memtable_bytes),
            bytes(self.memtable_bytes_max),
            bytes(self.filter_bytes),
            bytes(self.filter_bytes_max),
            bytes(self.index_bytes),
            bytes(self.block_cache_bytes),
            bytes(self.block_cache_bytes_max),
            bytes(self.writing_bytes),
            bytes(self.writing_bytes_max),
            bytes(self.pinned_bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_in_columns() {
        let level = |tables, negatives| LevelStats {
            runs: 1,
            tables,
            filter_negatives: negatives,
            candidates: negatives,
            ..LevelStats::default()
        };
        let levels = vec![level(2, 900), LevelStats::default(), level(30, 1_000_000)];
        let stats = Stats { levels, ..Stats::default() };
        let text = stats.to_string();
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines.len(), 8, "{text}");
        for (at, start) in
            [(0, "level  runs"), (1, "    0     1"), (2, "    2     1"), (3, "total     2")]
        {
            assert!(lines[at].starts_with(start), "{text}");
            assert_eq!(lines[at].len(), lines[0].len(), "{text}");
        }
        assert!(lines[7].contains("  1000900  "), "{text}");
        assert!(!text.contains("prefix"), "{text}");
        assert!(text.starts_with("0.0 s, sequence 0, 0 log segments of 0 B\n"), "{text}");
    }
}
