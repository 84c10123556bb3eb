//! Merge operator that adds integers.

use super::{MergeError, MergeOperator};

/// Merge operator that adds integers: a counter. Value and operands are an `i64` of 8 bytes,
/// big-endian ([`i64::to_be_bytes`]), as those of [`fetch_add`](crate::Keyspace::fetch_add). An
/// absent key counts as 0. Sums wrap around at the limits of `i64`. A value or operand of another
/// length makes reads fail.
///
/// ```
/// use std::sync::Arc;
/// use sievedb::{Counter, Db, KeyspaceOptions};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path())?;
/// let options = KeyspaceOptions::new().merge_operator(Arc::new(Counter));
/// let hits = db.keyspace_with("hits", &options)?;
/// hits.merge("page", 2_i64.to_be_bytes())?;
/// hits.merge("page", (-1_i64).to_be_bytes())?;
/// assert_eq!(hits.get("page")?.as_deref(), Some(&1_i64.to_be_bytes()[..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter;

pub(super) const NAME: &str = "sieve.counter";

fn number(bytes: &[u8]) -> Result<i64, MergeError> {
    let bytes = <[u8; 8]>::try_from(bytes);
    bytes.map(i64::from_be_bytes).map_err(|_| MergeError::new("not a counter of 8 bytes"))
}

impl MergeOperator for Counter {
    fn name(&self) -> &str {
        NAME
    }

    fn merge(
        &self,
        _: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let mut sum = base.map_or(Ok(0), number)?;
        for operand in operands {
            sum = sum.wrapping_add(number(operand)?);
        }
        Ok(sum.to_be_bytes().to_vec())
    }

    fn partial_merge(&self, _: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let (older, newer) = (number(older).ok()?, number(newer).ok()?);
        Some(older.wrapping_add(newer).to_be_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_wraps_around() {
        let bytes = |number: i64| number.to_be_bytes();
        let merged = Counter.merge(b"", Some(&bytes(i64::MAX)), &[&bytes(1), &bytes(2)]);
        assert_eq!(merged, Ok(bytes(i64::MIN + 2).to_vec()));
        let merged = Counter.partial_merge(b"", &bytes(i64::MIN), &bytes(-1));
        assert_eq!(merged, Some(bytes(i64::MAX).to_vec()));
        assert_eq!(Counter.merge(b"", None, &[&bytes(-3)]), Ok(bytes(-3).to_vec()));
    }

    #[test]
    fn other_lengths_are_refused() {
        for bytes in [&[][..], &[0; 7], &[0; 9]] {
            Counter.merge(b"", None, &[bytes]).expect_err("operand");
            Counter.merge(b"", Some(bytes), &[&[0; 8]]).expect_err("base");
            assert_eq!(Counter.partial_merge(b"", bytes, &[0; 8]), None);
        }
    }
}
