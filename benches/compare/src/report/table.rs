//! The table of one case.

use super::{Median, head, line, mib, none, ratio_text};
use crate::{
    case::{Family, Fit, Workload},
    workload::{
        DATA_BLOCK_REQUESTS, TOMBSTONES,
        scale::{THREADS_OVER_PROCESSES, THREADS_OVER_PROCESSES_CPU},
        tombstones::SCAN_AT_REST_NS,
        writer::WRITES_PER_SECOND,
    },
};

/// A column: its head, and its cell of a row.
type Column = (String, fn(&Median) -> String);

/// The table of the contestants of one case.
pub(super) fn table(rows: &[Median]) -> String {
    let case = rows[0].case;
    let columns = columns(&rows[0]);
    let mut text = format!(
        "\n**{case}** (rounds: {}, {} each)\n\n",
        rows[0].rounds,
        mib(rows[0].figures.total_bytes)
    );
    let mut heads = vec![String::new()];
    heads.extend(columns.iter().map(|(head, _)| head.clone()));
    head(&mut text, &heads, 1..heads.len() - 1);
    for row in rows {
        let mut cells = vec![row.contestant.title().to_owned()];
        cells.extend(columns.iter().map(|(_, cell)| cell(row)));
        line(&mut text, &cells);
    }
    text
}

/// The columns of a case.
fn columns(row: &Median) -> Vec<Column> {
    let (workload, operation) = (row.case.workload, row.case.workload.operation());
    let mut columns: Vec<Column> = vec![
        (format!("CPU ns per {operation}"), |row| format!("{:.0}", row.figures.cpu_ns)),
        ("× SieveDB".to_owned(), |row| row.ratio.map_or_else(none, ratio_text)),
        (format!("ns per {operation}"), |row| format!("{:.0}", row.figures.ns)),
        ("other threads' CPU ns".to_owned(), |row| format!("{:.0}", row.figures.background_cpu_ns)),
        ("p50 µs".to_owned(), |row| micro(row.figures.p50_ns)),
        ("p99 µs".to_owned(), |row| micro(row.figures.p99_ns)),
        ("p99.9 µs".to_owned(), |row| micro(row.figures.p999_ns)),
    ];
    let mut add = |head: &str, cell: fn(&Median) -> String| columns.push((head.to_owned(), cell));
    match workload {
        Workload::ScaleHit | Workload::ScaleMiss => {
            add("threads ÷ processes", |row| more(row, THREADS_OVER_PROCESSES, 2));
            add("by CPU time", |row| more(row, THREADS_OVER_PROCESSES_CPU, 2));
        }
        Workload::Tombstones => {
            add("at rest, µs", |row| {
                row.figures.more.get(SCAN_AT_REST_NS).map_or_else(none, |&ns| micro(ns))
            });
            add("tombstones at rest", |row| more(row, TOMBSTONES, 0));
        }
        Workload::MissWhileWriting | Workload::MixedWhileWriting => {
            add("writes per s", |row| more(row, WRITES_PER_SECOND, 0));
        }
        _ => {}
    }
    if row.case.fit != Fit::Cached && row.case.workload.family() == Family::Reads {
        add("data-block requests", |row| more(row, DATA_BLOCK_REQUESTS, 4));
    }
    add("read calls", |row| format!("{:.4}", row.figures.read_calls));
    add("bytes read", |row| format!("{:.1}", row.figures.read_bytes));
    add("from the device", |row| format!("{:.1}", row.figures.device_read_bytes));
    if matches!(workload.family(), Family::Writes | Family::Ycsb) {
        add("write calls", |row| format!("{:.4}", row.figures.write_calls));
        add("bytes written", |row| format!("{:.1}", row.figures.write_bytes));
        add("to the device", |row| format!("{:.1}", row.figures.device_write_bytes));
        add("settling s", |row| format!("{:.1}", row.figures.settle_ms / 1e3));
        add("space", |row| mib(row.figures.space_bytes));
    }
    add("memory", |row| mib(row.figures.memory_bytes));
    add("of it no file's", |row| mib(row.figures.memory_anonymous_bytes));
    add("peak", |row| mib(row.figures.memory_peak_bytes) + row.mark());
    add("open ms", |row| format!("{:.1}", row.figures.open_ms));
    add("tree", |row| row.shape.clone());
    columns
}

/// Formats an optional figure with this number of decimals.
fn more(row: &Median, name: &str, decimals: usize) -> String {
    row.figures.more.get(name).map_or_else(none, |figure| format!("{figure:.decimals$}"))
}

fn micro(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::Case,
        contestant::Contestant,
        figures::tests::all,
        report::{medians, tests::measurement},
    };

    #[test]
    fn table_rows_have_equal_cells() {
        for case in Case::all(&Workload::ALL, &Fit::ALL, 4) {
            let medians = medians(&[measurement(Contestant::Sievedb, case, 0, all(1.0))]);
            let text = table(&medians);
            let lines = text.lines().filter(|line| line.starts_with('|'));
            let cells: Vec<usize> = lines.map(|line| line.matches(" |").count()).collect();
            assert_eq!(cells.len(), 3, "{text}");
            assert!(cells.iter().all(|&count| count == cells[0]), "{text}");
        }
    }
}
