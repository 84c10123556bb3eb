//! Bytes and their meaning side by side.
//!
//! Each format has a `describe` function that fills an [`Annotation`]. `sieve dump` prints it, and
//! the golden files pin it.

use std::{fmt, ops::Range};

/// Fields of a file in the order they were added, each with its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotation {
    base: u64,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    place: Range<u64>,
    field: String,
    meaning: String,
}

impl Annotation {
    /// An empty annotation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Places of the fields that follow are counted from `offset` of the file.
    pub fn rebase(&mut self, offset: u64) {
        self.base = offset;
    }

    /// Adds the field at `place`.
    pub fn field(
        &mut self,
        place: Range<u64>,
        field: impl fmt::Display,
        meaning: impl fmt::Display,
    ) {
        let place = self.base + place.start..self.base + place.end;
        self.lines.push(Line { place, field: field.to_string(), meaning: meaning.to_string() });
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no field was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.lines.iter().map(|line| line.field.len()).max().unwrap_or(0);
        for Line { place, field, meaning } in &self.lines {
            writeln!(f, "{:08x}-{:08x}  {field:width$}  {meaning}", place.start, place.end)?;
        }
        Ok(())
    }
}

/// Bytes for people: as text where they are printable ASCII, else in hexadecimal; cut at 64 bytes.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let mut text = if shown.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        format!("{:?}", String::from_utf8_lossy(shown))
    } else {
        shown.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
    };
    if shown.len() < bytes.len() {
        text += &format!("… ({} bytes)", bytes.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_line_up() {
        let mut annotation = Annotation::new();
        annotation.field(0..4, "n", 3);
        annotation.rebase(16);
        annotation.field(0..8, "checksum", "ok");
        let want = "00000000-00000004  n         3\n00000010-00000018  checksum  ok\n";
        assert_eq!(annotation.to_string(), want);
    }

    #[test]
    fn bytes_are_shown_as_text_where_they_are() {
        assert_eq!(printable(b"user"), "\"user\"");
        assert_eq!(printable(&[0, 255]), "0x00ff");
        assert_eq!(printable(&[b'a'; 65]), format!("{:?}… (65 bytes)", "a".repeat(64)));
    }
}
