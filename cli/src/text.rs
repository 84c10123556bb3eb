//! Bytes and numbers as text, both ways.

/// Bytes as they are typed and printed: printable ASCII as it is, the rest as `\n`, `\t`, `\r`,
/// `\\` or `\x` and two hexadecimal digits. [`unescape`] reads them back.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text += r"\\",
            b'\n' => text += r"\n",
            b'\t' => text += r"\t",
            b'\r' => text += r"\r",
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text += &format!(r"\x{byte:02x}"),
        }
    }
    text
}

/// Reads what [`escape`] wrote; other characters stand for their UTF-8 bytes.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (byte, taken) = match after.as_bytes() {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'r', ..] => (b'\r', 1),
            [b'x', high, low, ..] => (hex(*high)? << 4 | hex(*low)?, 3),
            _ => return Err(r"write \\, \n, \t, \r or \x and two hexadecimal digits".to_owned()),
        };
        bytes.push(byte);
        rest = &after[taken..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

fn hex(digit: u8) -> Result<u8, String> {
    let value = char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    value.ok_or_else(|| format!("{:?} is no hexadecimal digit", char::from(digit)))
}

/// A number with a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit that fits.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = number as f64;
    let mut text = format!("{number} B");
    for unit in units {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        text = format!("{size:.1} {unit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), Ok(all));
        let cases: [(&str, &[u8]); 5] = [
            ("", b""),
            (r"a\x00b", b"a\0b"),
            (r"\\x41", br"\x41"),
            ("ä", &[0xc3, 0xa4]),
            (r"\xFf", b"\xff"),
        ];
        for (text, want) in cases {
            assert_eq!(unescape(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn bad_escapes_are_refused() {
        for text in ["\\", r"a\", r"\q", r"\x", r"\x4", r"\xg0", r"\x4ä", r"\xä"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_read_well() {
        let counts = [(0, "0"), (999, "999"), (1000, "1,000"), (2_000_000, "2,000,000")];
        for (number, want) in counts {
            assert_eq!(count(number), want);
        }
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (number, want) in sizes {
            assert_eq!(bytes(number), want);
        }
    }
}
