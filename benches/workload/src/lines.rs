//! Keys from a file: real data, one key a line.

use std::{ops::Range, sync::Arc};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of the split and the order of lines. Fixed, so that every run and every machine splits a
/// file alike.
const SPLIT_SEED: u64 = 0x5349_4556_4544_4231;

/// Lines of a text, kept as in the file: memory is the file plus 16 bytes per line.
#[derive(Debug, Clone)]
pub struct Lines {
    text: Arc<[u8]>,
    places: Vec<Range<usize>>,
}

impl Lines {
    /// Splits the distinct lines of `text` into two halves by one bit of their hash.
    ///
    /// Lines end with LF or CR LF; empty ones are skipped. Both halves are in hash order, so that
    /// adjacent lines are not used consecutively.
    pub(crate) fn split(text: Vec<u8>) -> [Self; 2] {
        let mut places = places(&text);
        places.sort_unstable_by(|a, b| text[a.clone()].cmp(&text[b.clone()]));
        places.dedup_by(|a, b| text[a.clone()] == text[b.clone()]);
        places.sort_by_cached_key(|place| hash(&text[place.clone()]));
        let (stored, absent) =
            places.into_iter().partition(|place| hash(&text[place.clone()]) & 1 == 0);
        let text = text.into();
        [stored, absent].map(|places| Self { text: Arc::clone(&text), places })
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// Keeps at most the first `len` lines.
    pub(crate) fn truncate(&mut self, len: u64) {
        self.places.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    }

    /// Appends line number `index`, which is below [`len`](Self::len).
    pub(crate) fn append(&self, index: u64, key: &mut Vec<u8>) {
        let index = usize::try_from(index).expect("an index of a list fits");
        key.extend_from_slice(&self.text[self.places[index].clone()]);
    }
}

/// Returns the ranges of the non-empty lines of `text`.
fn places(text: &[u8]) -> Vec<Range<usize>> {
    let mut start = 0;
    let lines = text.split(|&byte| byte == b'\n').map(|line| {
        let place = start..start + line.strip_suffix(b"\r").unwrap_or(line).len();
        start += line.len() + 1;
        place
    });
    lines.filter(|place| !place.is_empty()).collect()
}

fn hash(line: &[u8]) -> u64 {
    xxh3_64_with_seed(line, SPLIT_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &Lines) -> Vec<Vec<u8>> {
        let key = |index| {
            let mut key = Vec::new();
            lines.append(index, &mut key);
            key
        };
        (0..lines.len()).map(key).collect()
    }

    #[test]
    fn lines_are_split_at_newlines() {
        let cases: [(&str, &[u8], &[&str]); 7] = [
            ("nothing", b"", &[]),
            ("empty lines", b"\n\n\r\n", &[]),
            ("one line", b"a\n", &["a"]),
            ("no end of line", b"a\nb", &["a", "b"]),
            ("from Windows", b"a\r\nb\r\n", &["a", "b"]),
            ("spaces count", b" a\na \n", &[" a", "a "]),
            ("repeated", b"b\na\nb\nb\n", &["a", "b"]),
        ];
        for (name, text, want) in cases {
            let mut lines = Lines::split(Vec::from(text)).iter().flat_map(all).collect::<Vec<_>>();
            lines.sort();
            assert_eq!(
                lines,
                want.iter().map(|line| line.as_bytes()).collect::<Vec<_>>(),
                "{name}"
            );
        }
    }

    #[test]
    fn halves_are_similar_and_independent_of_line_order() {
        let mut lines: Vec<String> = (0..10_000).map(|line| format!("user {line}\n")).collect();
        let halves = Lines::split(lines.concat().into_bytes());
        // Five standard deviations of a binomial count are 250.
        assert!(halves[0].len().abs_diff(5_000) < 250, "{}", halves[0].len());
        assert_eq!(halves[0].len() + halves[1].len(), 10_000);
        lines.reverse();
        let again = Lines::split(lines.concat().into_bytes());
        assert_eq!(halves.map(|half| all(&half)), again.map(|half| all(&half)));
    }
}
