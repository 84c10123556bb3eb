//! Statistics as text.

mod memory;

use std::{fmt, time::Duration};

use super::{
    BackgroundStats, KeyspaceStats, LevelStats, LookupStats, OpeningStats, Stats, WriteStats,
};
use crate::text::{bytes, counted};

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "time: {:.1} s; last sequence number: {}; log: {} of {}",
            self.open_for.as_secs_f64(),
            self.last_sequence,
            counted(self.log_segments, ["segment", "segments"]),
            bytes(self.log_bytes)
        )?;
        if let Some(oldest) = self.changes_kept_after {
            let kept = bytes(self.retained_log_bytes);
            write!(f, "; {kept} more for changes after {oldest}")?;
        }
        writeln!(f)?;
        self.memory.fmt_with(&self.moves, f)?;
        let delay = self.write_delay_us;
        write!(f, "\nwrites: {}; present delay of each: {delay} us", self.writes)?;
        if self.snapshots > 0 {
            let snapshots = counted(self.snapshots, ["snapshot is", "snapshots are"]);
            let age = self.oldest_snapshot_us as f64 / 1e6;
            write!(f, "\n{snapshots} open, the oldest for {age:.1} s")?;
        }
        write!(f, "\nbackground: {}", self.background)?;
        write!(f, "\nlookups: {}", self.lookups)?;
        write!(
            f,
            "\nphysical reads of table files, by lookups, scans and background work: {} ({}); planned: {:.4} \
             runs searched for an absent key",
            self.table_reads.calls,
            bytes(self.table_reads.bytes),
            self.false_positives_planned
        )?;
        self.opening.fmt_known(f)?;
        self.fmt_levels(f)?;
        for keyspace in &self.keyspaces {
            write!(f, "\n{keyspace}")?;
            write!(f, "\n  {}", keyspace.options)?;
        }
        if self.tables_with_unusable_filters > 0 {
            let filters = counted(self.tables_with_unusable_filters, ["filter", "filters"]);
            write!(f, "\n{filters} cannot be used")?;
        }
        if self.filters_not_whole > 0 {
            let filters = counted(self.filters_not_whole, ["filter is", "filters are"]);
            // The plan leaves space for filters that replace others.
            let has_room = self.memory.filter_bytes < self.memory.filter_bytes_max / 8 * 7;
            let why = match has_room {
                true => {
                    "by plan, not for want of room: newer tables need the bits of the policy more"
                }
                false => "for want of room",
            };
            write!(f, "\n{filters} not whole in memory, {why}")?;
        }
        if self.tables_quarantined > 0 {
            let tables = counted(self.tables_quarantined, ["table is", "tables are"]);
            write!(f, "\n{tables} quarantined: not compacted, because of damage or read errors")?;
        }
        for table in &self.quarantined {
            write!(f, "\n{table}")?;
        }
        if self.compaction_bytes_refused > 0 {
            let input = bytes(self.compaction_bytes_refused);
            write!(f, "\ncompactions of {input} or more wait: the disk is full")?;
        }
        if let Some(cause) = &self.read_only {
            write!(f, "\nread-only: {cause}")?;
        }
        Ok(())
    }
}

impl Stats {
    /// Writes a table of the state of levels, one of lookups, and one of scans if there were any.
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
        write!(
            f,
            "\nlevels, all keyspaces together: what they hold, what lookups did, what scans did"
        )?;
        table(f, &rows, &HELD)?;
        table(f, &rows, &LOOKUPS)?;
        if rows.iter().any(|(_, level)| seen_by_scans(level)) {
            table(f, &rows, &SCANS)?;
        }
        Ok(())
    }
}

fn seen_by_scans(level: &LevelStats) -> bool {
    let probes =
        level.prefix_probes + level.prefix_unusable + level.range_probes + level.range_unusable;
    probes + level.tombstones_skipped > 0
}

/// Head of a column, and its cell for a level.
type Column = (&'static str, fn(&LevelStats) -> String);

const HELD: [Column; 9] = [
    ("runs", |level| level.runs.to_string()),
    ("tables", |level| level.tables.to_string()),
    ("size", |level| bytes(level.bytes)),
    ("entries", |level| level.entries.to_string()),
    ("tombstones", |level| level.tombstones.to_string()),
    ("filters", |level| bytes(level.filter_bytes)),
    ("of whole", |level| bytes(level.filter_bytes_whole)),
    ("not whole", |level| level.filters_not_whole.to_string()),
    ("unusable", |level| level.tables_with_unusable_filters.to_string()),
];

const LOOKUPS: [Column; 13] = [
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
    ("blocks read", |level| level.blocks_read.to_string()),
    ("size read", |level| bytes(level.bytes_read)),
];

const SCANS: [Column; 7] = [
    ("prefix probes", |level| level.prefix_probes.to_string()),
    ("negatives", |level| level.prefix_negatives.to_string()),
    ("unusable", |level| level.prefix_unusable.to_string()),
    ("range probes", |level| level.range_probes.to_string()),
    ("negatives", |level| level.range_negatives.to_string()),
    ("unusable", |level| level.range_unusable.to_string()),
    ("tombstones skipped", |level| level.tombstones_skipped.to_string()),
];

fn percent(rate: f64) -> String {
    format!("{:.4} %", rate * 100.0)
}

fn table(
    f: &mut fmt::Formatter<'_>,
    levels: &[(String, LevelStats)],
    heads: &[Column],
) -> fmt::Result {
    let first = std::iter::once("level".to_owned());
    let mut rows = vec![first.chain(heads.iter().map(|(head, _)| (*head).to_owned())).collect()];
    for (name, level) in levels {
        let first = std::iter::once(name.clone());
        rows.push(first.chain(heads.iter().map(|(_, cell)| cell(level))).collect());
    }
    columns(f, &rows)
}

/// Writes rows of cells in right-aligned columns.
fn columns(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let width_of = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width_of).collect();
    for row in rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let before = if at == 0 { "\n" } else { "  " };
            write!(f, "{before}{cell:>width$}")?;
        }
    }
    Ok(())
}

impl fmt::Display for LookupStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} found in memtables, {} probed, {} negative",
            self.lookups,
            self.found_in_memtables,
            counted(self.memtable_probes, ["memtable filter", "memtable filters"]),
            self.memtable_negatives
        )
    }
}

impl fmt::Display for WriteStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {} ({}), {}; {} of {:.3} s in all",
            counted(self.entries, ["entry", "entries"]),
            counted(self.batches, ["batch", "batches"]),
            bytes(self.bytes),
            counted(self.log_syncs, ["sync of the log", "syncs of the log"]),
            counted(self.stalls, ["stall", "stalls"]),
            self.stalled_us as f64 / 1e6
        )
    }
}

impl fmt::Display for BackgroundStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} written), {} ({} read, {} written), {}, {} rebuilt",
            counted(self.flushes, ["flush", "flushes"]),
            bytes(self.flush_bytes_written),
            counted(self.compactions, ["compaction", "compactions"]),
            bytes(self.compaction_bytes_read),
            bytes(self.compaction_bytes_written),
            counted(self.trivial_moves, ["move of tables", "moves of tables"]),
            counted(self.filters_rebuilt, ["filter", "filters"])
        )
    }
}

impl OpeningStats {
    /// Writes the known durations, and truncated bytes if any.
    fn fmt_known(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        if !self.total.is_zero() {
            write!(
                f,
                "\nopening: {:.1} ms, of which log {:.1}, tables of it {:.1}, tables {:.1} ({}), filters {:.1}, \
                 manifest {:.1}",
                ms(self.total),
                ms(self.log),
                ms(self.replayed),
                ms(self.tables),
                counted(self.threads as u64, ["thread", "threads"]),
                ms(self.filters),
                ms(self.manifest)
            )?;
        }
        for (name, cut) in [("log", self.log_bytes_cut), ("manifest", self.manifest_bytes_cut)] {
            if cut > 0 {
                let cut = bytes(cut);
                write!(f, "\n{cut} at the end of the {name} were no record and were truncated")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for KeyspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "keyspace {:?}: {}, {}, {}, {}",
            self.name,
            counted(self.runs, ["run", "runs"]),
            counted(self.tables, ["table", "tables"]),
            bytes(self.table_bytes),
            counted(self.entries, ["entry", "entries"])
        )?;
        if self.blob_files > 0 {
            let files = counted(self.blob_files, ["blob file", "blob files"]);
            let (all, garbage) = (bytes(self.blob_bytes), bytes(self.blob_garbage_bytes));
            write!(f, "; {files} of {all} with {garbage} of garbage, depth {}", self.blob_depth)?;
        }
        if self.levels.len() > 1 {
            for (number, level) in self.levels.iter().enumerate() {
                let before = if number == 0 { "; " } else { ", " };
                write!(f, "{before}level {}: {}", level.level, bytes(level.bytes))?;
            }
        }
        if self.memtable_bytes > 0 {
            write!(f, "; memtables {}", bytes(self.memtable_bytes))?;
        }
        if self.frozen_memtables > 0 {
            let frozen = counted(self.frozen_memtables, ["frozen memtable", "frozen memtables"]);
            write!(f, "; {frozen}")?;
        }
        Ok(())
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
        let lines: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("level  runs")).collect();
        assert_eq!(lines.len(), 8, "{text}");
        for (at, start) in
            [(0, "level  runs"), (1, "    0     1"), (2, "    2     1"), (3, "total     2")]
        {
            assert!(lines[at].starts_with(start), "{text}");
            assert_eq!(lines[at].len(), lines[0].len(), "{text}");
        }
        assert!(lines[7].contains("  1000900  "), "{text}");
        assert!(!text.contains("prefix"), "{text}");
        let first = "time: 0.0 s; last sequence number: 0; log: 0 segments of 0 B\n";
        assert!(text.starts_with(first), "{text}");
        assert!(!text.ends_with('\n') && !text.contains("\n\n"), "{text}");
        for part in ["writes: 0 entries", "background: 0 flushes", "tombstones"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
