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

macro_rules! keeps_extreme {
    ($operator:ident, $name:ident, $extreme:ident) => {
        impl MergeOperator for $operator {
            fn name(&self) -> &str {
                $name
            }

            fn merge(
                &self,
                _: &[u8],
                base: Option<&[u8]>,
                operands: &[&[u8]],
            ) -> Result<Vec<u8>, MergeError> {
                let extreme = base.iter().chain(operands).$extreme();
                Ok(extreme.map_or_else(Vec::new, |extreme| extreme.to_vec()))
            }

            fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
                Some(older.$extreme(newer).to_vec())
            }
        }
    };
}

keeps_extreme!(Max, MAX_NAME, max);
keeps_extreme!(Min, MIN_NAME, min);

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
