//! Numbers and keys as text.

/// Formats a number of bytes in the largest unit that fits, from B to TiB.
///
/// ```
/// use sievedb::text::bytes;
/// assert_eq!((bytes(1023), bytes(1536)), ("1023 B".to_owned(), "1.5 KiB".to_owned()));
/// assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
/// ```
#[must_use]
pub fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = number as f64;
    let mut text = format!("{number} B");
    for unit in units {
        // Rounded, as it is printed.
        if (size * 10.0).round() < 10_240.0 {
            break;
        }
        size /= 1024.0;
        text = format!("{size:.1} {unit}");
    }
    text
}

/// Maximum number of bytes shown of a key.
const KEY_BYTES_SHOWN: usize = 40;

/// Formats a key, with escapes; the start and the length of a long one.
pub(crate) fn key(key: &[u8]) -> String {
    match key.get(..KEY_BYTES_SHOWN) {
        Some(start) if start.len() < key.len() => {
            format!("\"{}\"... ({} bytes)", start.escape_ascii(), key.len())
        }
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}

/// Formats `number` with its noun: the singular for 1, else the plural.
pub(crate) fn counted(number: u64, [singular, plural]: [&str; 2]) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (number, want) in sizes {
            assert_eq!(bytes(number), want);
        }
        for (number, want) in [(0, "0 tables"), (1, "1 table"), (2, "2 tables")] {
            assert_eq!(counted(number, ["table", "tables"]), want);
        }
    }
}
