//! Merge operators that keep the largest or the smallest value.

use super::{MergeError, MergeOperator};

/// Merge operator that keeps the largest of value and operands, in byte order. Encode numbers
/// big-endian, with the same length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Max;

/// Merge operator that keeps the smallest of value and operands, in byte order. Otherwise as
/// [`Max`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Min;

pub(super) const MAX_NAME: &str = "sieve.max";
pub(super) const MIN_NAME: &str = "sieve.min";

impl MergeOperator for Max {
    fn name(&self) -> &str {
        MAX_NAME
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let largest = base.iter().chain(operands).max();
        Ok(largest.map_or_else(Vec::new, |largest| largest.to_vec()))
    }

    fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(older.max(newer).to_vec())
    }
}

impl MergeOperator for Min {
    fn name(&self) -> &str {
        MIN_NAME
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let smallest = base.iter().chain(operands).min();
        Ok(smallest.map_or_else(Vec::new, |smallest| smallest.to_vec()))
    }

    fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(older.min(newer).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_as_bytes() {
        let operands: [&[u8]; 3] = [b"b", b"ab", b"a"];
        assert_eq!(Max.merge(b"", Some(b"\xff"), &operands), Ok(vec![0xff]));
        assert_eq!(Max.merge(b"", None, &operands), Ok(b"b".to_vec()));
        assert_eq!(Min.merge(b"", Some(b"\xff"), &operands), Ok(b"a".to_vec()));
        assert_eq!(Min.merge(b"", Some(b""), &operands), Ok(Vec::new()));
        assert_eq!(Max.partial_merge(b"", b"a", b"ab"), Some(b"ab".to_vec()));
        assert_eq!(Min.partial_merge(b"", b"a", b"ab"), Some(b"a".to_vec()));
    }
}
