//! Output of a run: tables, numbers, progress bars and files.

use std::{
    fmt::Display,
    fs,
    io::{self, Write as _},
    path::Path,
};

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use indicatif::{ProgressBar, ProgressStyle};

/// Returns a Markdown table. The first `names` columns are text, the others numbers.
pub(crate) fn table(header: &[&str], names: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(rows);
    format!("{table}\n")
}

/// `number`, or a dash.
pub(crate) fn or_dash<T>(number: Option<T>, text: impl FnOnce(T) -> String) -> String {
    number.map_or_else(|| "–".to_owned(), text)
}

/// A rate with three digits: `0.982 %`.
pub(crate) fn per_cent(rate: f64) -> String {
    /// Logarithm of what is rounded up to the next digit.
    const ROUNDED_UP: f64 = 0.000_217;
    let per_cent = rate * 100.0;
    // Decimal places for three significant digits.
    let places = 2.0 - (per_cent.log10() + ROUNDED_UP).floor();
    let places = if per_cent > 0.0 { places.clamp(0.0, 6.0) } else { 1.0 };
    format!("{per_cent:.*} %", places as usize)
}

/// Bytes in the unit that suits them.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        0.0..1e4 => format!("{bytes:.0} B"),
        1e4..1e6 => format!("{:.1} kB", bytes / 1e3),
        _ => format!("{:.2} MB", bytes / 1e6),
    }
}

/// A count with commas between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    groups.join(",")
}

/// Returns a progress bar, drawn only on a terminal.
pub(crate) fn bar(len: u64, title: impl Display) -> ProgressBar {
    let template = "{msg:44} {wide_bar} {human_pos} of {human_len}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    ProgressBar::new(len).with_style(style).with_message(title.to_string())
}

/// Writes a file, creates its directory, and reports the path on standard error.
#[expect(clippy::disallowed_methods, reason = "the engine's `fs` trait is for files of stores")]
pub(crate) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(path, text)?;
    writeln!(io::stderr(), "wrote {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates = [
            (0.0123, "1.23 %"),
            (0.1, "10.0 %"),
            (0.009_999_9, "1.00 %"),
            (0.009_99, "0.999 %"),
            (0.0, "0.0 %"),
            (0.000_010_4, "0.00104 %"),
        ];
        for (rate, want) in rates {
            assert_eq!(per_cent(rate), want);
        }
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), want);
        }
        for (number, want) in [(2048.0, "2048 B"), (12_345.0, "12.3 kB"), (7.7e8, "770.00 MB")] {
            assert_eq!(bytes(number), want);
        }
    }
}
