//! Merge operators.

use std::fmt;

/// Folds the merge operands of a key into its value, as the merge operator of the database does.
///
/// # Examples
///
/// ```
/// use sievedb_migrate::MergeOperator;
///
/// /// Keeps the largest operand.
/// #[derive(Debug)]
/// struct Largest;
///
/// impl MergeOperator for Largest {
///     fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
///         value.into_iter().chain(operands.iter().copied()).max().map(<[u8]>::to_vec)
///     }
/// }
///
/// assert_eq!(Largest.merge(b"key", Some(b"b"), &[b"a", b"c"]), Some(b"c".to_vec()));
/// ```
pub trait MergeOperator: fmt::Debug + Send + Sync {
    /// Returns the merged value of `key`. `None` means that the operands cannot be merged, which
    /// ends the scan with an error.
    ///
    /// `value` is the value before all operands, `None` if the key was absent. `operands` is never
    /// empty; the oldest operand is first.
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>>;
}

/// RocksDB's `StringAppendOperator`: concatenates value and operands, with a delimiter between.
///
/// # Examples
///
/// ```
/// use sievedb_migrate::{MergeOperator, StringAppend};
///
/// let append = StringAppend::new(",");
/// assert_eq!(append.merge(b"key", Some(b"a"), &[b"b", b"c"]), Some(b"a,b,c".to_vec()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringAppend {
    delimiter: Vec<u8>,
}

impl StringAppend {
    /// Concatenates with `delimiter`, which may be empty.
    #[must_use]
    pub fn new(delimiter: impl Into<Vec<u8>>) -> Self {
        Self { delimiter: delimiter.into() }
    }
}

impl MergeOperator for StringAppend {
    fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<_> = value.into_iter().chain(operands.iter().copied()).collect();
        Some(parts.join(&self.delimiter[..]))
    }
}

/// RocksDB's `UInt64AddOperator`: adds little-endian integers of 8 bytes, wrapping around. A value
/// of another length counts as 0, as in RocksDB.
///
/// # Examples
///
/// ```
/// use sievedb_migrate::{MergeOperator, UInt64Add};
///
/// let (one, two) = (1_u64.to_le_bytes(), 2_u64.to_le_bytes());
/// assert_eq!(UInt64Add.merge(b"key", Some(&one), &[&two]), Some(3_u64.to_le_bytes().to_vec()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UInt64Add;

impl MergeOperator for UInt64Add {
    fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let all = value.into_iter().chain(operands.iter().copied());
        let sum = all.fold(0_u64, |sum, bytes| sum.wrapping_add(number(bytes)));
        Some(sum.to_le_bytes().to_vec())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
