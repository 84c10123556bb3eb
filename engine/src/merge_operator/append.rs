//! Merge operator that concatenates byte strings.

use super::{MergeError, MergeOperator};

/// Maximum length of the separator, in bytes: its name is stored in hexadecimal.
const SEPARATOR_BYTES_MAX: usize = 64;

/// Merge operator that concatenates the value and all operands, in the order of their writes, with
/// a separator between them. The first operand of an absent key becomes its value.
///
/// A value grows with each operand, up to 256 MiB. Each read and each fold copies all of it.
///
/// ```
/// use std::sync::Arc;
/// use sievedb::{Append, Db, KeyspaceOptions};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::new().merge_operator(Arc::new(Append::with_separator(",")));
/// let tags = db.keyspace_with("tags", &options)?;
/// tags.merge("post", "rust")?;
/// tags.merge("post", "db")?;
/// assert_eq!(tags.get("post")?.as_deref(), Some(&b"rust,db"[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    separator: Box<[u8]>,
    name: String,
}

pub(super) const NAME: &str = "sieve.append";

impl Default for Append {
    fn default() -> Self {
        Self::new()
    }
}

impl Append {
    /// Returns an operator without a separator.
    #[must_use]
    pub fn new() -> Self {
        Self { separator: Box::default(), name: NAME.to_owned() }
    }

    /// Returns an operator with `separator` between two parts: 0 to 64 bytes, stored as part of the
    /// name. The parts are not escaped.
    ///
    /// # Panics
    ///
    /// If `separator` is longer than 64 bytes.
    #[must_use]
    pub fn with_separator(separator: impl AsRef<[u8]>) -> Self {
        let separator = separator.as_ref();
        let bytes = separator.len();
        assert!(
            bytes <= SEPARATOR_BYTES_MAX,
            "a separator of {bytes} bytes is too long: at most 64"
        );
        if separator.is_empty() {
            return Self::new();
        }
        let digits: String = separator.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { separator: separator.into(), name: format!("{NAME}:{digits}") }
    }

    /// Returns the operator of this name, if it is one.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(NAME)?;
        if rest.is_empty() {
            return Some(Self::new());
        }
        let (pairs, odd) = rest.strip_prefix(':')?.as_bytes().as_chunks::<2>();
        if !odd.is_empty() || pairs.is_empty() || pairs.len() > SEPARATOR_BYTES_MAX {
            return None;
        }
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let separator: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Some(Self::with_separator(separator?)).filter(|operator| operator.name == name)
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        Ok(match base {
            None => operands.join(&*self.separator),
            Some(base) => [&[base], operands].concat().join(&*self.separator),
        })
    }

    fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some([older, newer].join(&*self.separator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_in_order() {
        let operands: [&[u8]; 2] = [b"b", b"c"];
        assert_eq!(Append::new().merge(b"", Some(b"a"), &operands), Ok(b"abc".to_vec()));
        let comma = Append::with_separator(", ");
        assert_eq!(comma.merge(b"", None, &operands), Ok(b"b, c".to_vec()));
        assert_eq!(comma.merge(b"", Some(b""), &operands), Ok(b", b, c".to_vec()));
        assert_eq!(comma.partial_merge(b"", b"a", b""), Some(b"a, ".to_vec()));
    }

    #[test]
    fn a_name_has_the_separator() {
        for separator in [&b""[..], b",", b"\x00\xff", &[7; SEPARATOR_BYTES_MAX]] {
            let operator = Append::with_separator(separator);
            assert_eq!(Append::from_name(operator.name()), Some(operator));
        }
        for name in ["sieve.append:", "sieve.append:2", "sieve.append:2C", "sieve.append:+1", ""] {
            assert_eq!(Append::from_name(name), None, "{name}");
        }
    }
}
