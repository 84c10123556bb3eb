//! Annotated dumps: bytes and their meaning.
//!
//! Each format has a `describe` function that fills an [`Annotation`]. `sieve dump` prints it, and
//! golden files pin it.

use std::{
    fmt,
    ops::{ControlFlow, Range},
};

/// Receives the next part of the description of a file. [`ControlFlow::Break`] ends the
/// description.
pub type NextPart<'a> = dyn FnMut(Annotation) -> ControlFlow<()> + 'a;

/// Fields of a file in insertion order, each with its byte range.
///
/// Formatting aligns the fields. A width is the least width of the column of their names, so that
/// several parts are aligned: `{:24}`.
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
    /// Creates an empty annotation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the file offset that later fields are relative to.
    pub fn rebase(&mut self, offset: u64) {
        self.base = offset;
    }

    /// Adds a field at `place`, relative to the current base offset.
    pub fn field(
        &mut self,
        place: Range<u64>,
        field: impl fmt::Display,
        meaning: impl fmt::Display,
    ) {
        let place = self.base + place.start..self.base + place.end;
        self.lines.push(Line { place, field: field.to_string(), meaning: meaning.to_string() });
    }

    /// Returns the description whose parts `describe` passes on, with its result.
    pub fn of_parts<T>(describe: impl FnOnce(&mut NextPart<'_>) -> T) -> (T, Self) {
        let mut all = Self::new();
        let described = describe(&mut |mut part| {
            all.lines.append(&mut part.lines);
            ControlFlow::Continue(())
        });
        (described, all)
    }

    /// Returns the number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns `true` if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.lines.iter().map(|line| line.field.len()).max().unwrap_or(0);
        let width = widest.max(f.width().unwrap_or(0));
        for Line { place, field, meaning } in &self.lines {
            writeln!(f, "{:08x}-{:08x}  {field:width$}  {meaning}", place.start, place.end)?;
        }
        Ok(())
    }
}

/// Formats bytes as text if they are printable ASCII, otherwise in hexadecimal.
///
/// Truncates longer input to its first 64 bytes and appends its length.
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
    fn fields_are_aligned() {
        let mut annotation = Annotation::new();
        annotation.field(0..4, "n", 3);
        annotation.rebase(16);
        annotation.field(0..8, "checksum", "ok");
        let want = "00000000-00000004  n         3\n00000010-00000018  checksum  ok\n";
        assert_eq!(annotation.to_string(), want);
    }

    #[test]
    fn parts_are_aligned_by_a_width() {
        let mut part = Annotation::new();
        part.field(0..4, "n", 3);
        assert_eq!(format!("{part:4}"), "00000000-00000004  n     3\n");
        part.field(4..8, "longer", 3);
        assert_eq!(format!("{part:4}"), part.to_string());
        let ((), all) = Annotation::of_parts(|next| {
            assert!(next(part.clone()).is_continue() && next(part.clone()).is_continue());
        });
        assert_eq!(all.to_string(), part.to_string().repeat(2));
    }

    #[test]
    fn printable_bytes_are_shown_as_text() {
        assert_eq!(printable(b"user"), "\"user\"");
        assert_eq!(printable(&[0, 255]), "0x00ff");
        assert_eq!(printable(&[b'a'; 65]), format!("{:?}… (65 bytes)", "a".repeat(64)));
    }
}
