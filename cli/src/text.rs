//! Conversion of bytes and numbers to text and back.

use crate::error::{Error, Result};

/// Notation of keys and values in arguments and output.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Notation {
    /// Read and print keys and values as hexadecimal digits, two per byte.
    #[arg(long)]
    hex: bool,
}

impl Notation {
    /// Decodes an argument.
    ///
    /// # Errors
    ///
    /// [`Error::BadText`].
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>> {
        self.bytes(text).map_err(|reason| Error::BadText { text: text.to_owned(), reason })
    }

    /// Decodes text that is not an argument.
    ///
    /// # Errors
    ///
    /// The reason why `text` is invalid.
    pub(crate) fn bytes(self, text: &str) -> Result<Vec<u8>, &'static str> {
        if self.hex { unhex(text) } else { unescape(text) }
    }

    /// Encodes `bytes` so that [`read`](Self::read) decodes them.
    pub(crate) fn write(self, bytes: &[u8]) -> String {
        if self.hex { hex(bytes) } else { escape(bytes) }
    }
}

/// Returns `number` with its noun: the singular for 1, else the plural.
pub(crate) fn counted(number: u64, [singular, plural]: [&str; 2]) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

/// Keeps printable characters; writes other bytes as `\n`, `\t`, `\r`, `\\` or `\x` and two
/// hexadecimal digits.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text += r"\\",
                '\n' => text += r"\n",
                '\t' => text += r"\t",
                '\r' => text += r"\r",
                '\'' | '"' => text.push(char),
                // Characters that `escape_debug` keeps are printable and do not control a terminal.
                _ if char.escape_debug().len() == 1 => text.push(char),
                _ => escape_bytes(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
            }
        }
        escape_bytes(chunk.invalid(), &mut text);
    }
    text
}

fn escape_bytes(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        *text += &format!(r"\x{byte:02x}");
    }
}

/// Decodes the output of [`escape`]. Characters without a backslash are their UTF-8 bytes.
fn unescape(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (byte, taken) = match after.as_bytes() {
            [b'\\', ..] => (b'\\', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'r', ..] => (b'\r', 1),
            [b'x', high, low, ..] => (unhex_byte(*high, *low)?, 3),
            _ => return Err(r"write \\, \n, \t, \r or \x and two hexadecimal digits"),
        };
        bytes.push(byte);
        rest = &after[taken..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Decodes an escaped name of a keyspace.
pub(crate) fn read_name(text: &str) -> Result<String, &'static str> {
    String::from_utf8(unescape(text)?).map_err(|_| "the name is not UTF-8")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, &'static str> {
    let (pairs, odd) = text.as_bytes().as_chunks();
    if !odd.is_empty() {
        return Err("each byte needs two hexadecimal digits");
    }
    pairs.iter().map(|&[high, low]| unhex_byte(high, low)).collect()
}

fn unhex_byte(high: u8, low: u8) -> Result<u8, &'static str> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| value.try_into().ok());
    let byte = digit(high).zip(digit(low)).map(|(high, low): (u8, u8)| high << 4 | low);
    byte.ok_or("hexadecimal digits are 0 to 9 and a to f")
}

/// Formats a number with a comma between thousands.
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOTATIONS: [Notation; 2] = [Notation { hex: false }, Notation { hex: true }];

    #[test]
    fn encoded_bytes_are_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        let cases: [&[u8]; 6] =
            [b"", &all, "ä \u{202e} \u{301}\u{7f}".as_bytes(), b"\xc3", br"\x41", b"'\""];
        for bytes in cases {
            for notation in NOTATIONS {
                let text = notation.write(bytes);
                assert_eq!(notation.read(&text).unwrap(), bytes, "{notation:?}: {text}");
            }
        }
    }

    #[test]
    fn unprintable_bytes_are_escaped() {
        let cases: [(&[u8], &str, &str); 5] = [
            (b"a b", "a b", "612062"),
            (b"a\0\n", r"a\x00\n", "61000a"),
            ("ä'".as_bytes(), "ä'", "c3a427"),
            (b"\xc3", r"\xc3", "c3"),
            // Changes the direction of text after it.
            ("\u{202e}".as_bytes(), r"\xe2\x80\xae", "e280ae"),
        ];
        for (bytes, escaped, digits) in cases {
            assert_eq!((&*escape(bytes), &*hex(bytes)), (escaped, digits));
        }
    }

    #[test]
    fn invalid_text_is_refused() {
        for text in ["\\", r"a\", r"\q", r"\x", r"\x4", r"\xg0", r"\x4ä", r"\xä"] {
            assert!(unescape(text).is_err(), "{text}");
        }
        for text in ["4", "4g", "ä", "0x41"] {
            assert!(unhex(text).is_err(), "{text}");
        }
    }

    #[test]
    fn thousands_are_separated() {
        let counts = [(0, "0"), (999, "999"), (1000, "1,000"), (2_000_000, "2,000,000")];
        for (number, want) in counts {
            assert_eq!(count(number), want);
        }
    }
}
