//! Names of directories.

use std::fmt::Write as _;

/// Longest name of a file or directory on Linux.
const NAME_BYTES_MAX: usize = 255;

/// Returns the name of the subdirectory of a column family, the number `number` of an export.
///
/// Keeps ASCII letters, digits, `-` and `_`, and writes each other byte as `%` and two hexadecimal
/// digits. If the result is empty or longer than 255 bytes, it is the number between two `%`, such
/// as `%7%`.
///
/// # Examples
///
/// ```
/// use sievedb_migrate::export::directory_name;
///
/// assert_eq!(directory_name("default", 1), "default");
/// assert_eq!(directory_name("a/b", 2), "a%2fb");
/// ```
#[must_use]
pub fn directory_name(family: &str, number: usize) -> String {
    let mut name = String::new();
    for byte in family.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    match name.len() {
        1..=NAME_BYTES_MAX => name,
        // No other name ends with `%`: two hexadecimal digits follow each `%`.
        _ => format!("%{number}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_stay_in_their_directory() {
        let long = "ä".repeat(120);
        let names =
            ["default", "..", ".", "", "a/b", "a%2fb", "a\0b", "A", &long, &format!("{long}x")];
        let found: std::collections::BTreeSet<_> =
            names.iter().zip(1..).map(|(name, number)| directory_name(name, number)).collect();
        assert_eq!(found.len(), names.len(), "{found:?}");
        for name in &found {
            assert!(name.len() <= NAME_BYTES_MAX && !name.contains(['/', '.', '\0']), "{name}");
        }
    }
}
