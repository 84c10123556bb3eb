//! Merge operators: functions that combine the value of a key with later operands.
//!
//! | module        | content                                                          |
//! |---------------|------------------------------------------------------------------|
//! | [`counter`]   | [`Counter`]: adds integers                                       |
//! | [`extreme`]   | [`Max`] and [`Min`]: keep the largest or smallest value          |
//! | [`append`]    | [`Append`]: joins byte strings                                   |
//! | [`set_union`] | [`SetUnion`]: union of sets of byte strings                      |
//! | [`named`]     | operator of a keyspace, by its stored name                       |
//!
//! A keyspace applies its operator in [`crate::fold`]. [`crate::resolve`] finds the operands that
//! belong to a value.

mod append;
mod counter;
mod extreme;
mod named;
mod set_union;

pub use self::{
    append::Append,
    counter::Counter,
    extreme::{Max, Min},
    set_union::SetUnion,
};

pub(crate) use self::named::NamedOperator;

use std::{error, fmt};

/// A merge operator: combines the value of a key with merge operands.
///
/// [`Keyspace::merge`](crate::Keyspace::merge) writes an operand without reading the value. Reads,
/// flushes and compactions apply operands later. So the result must depend on the arguments alone,
/// and must never change for a stored [name](Self::name). Otherwise values depend on when
/// compactions run.
///
/// Reading threads and background threads call an operator concurrently. If a call fails or panics,
/// the read fails with [`Error::MergeFailed`](crate::Error::MergeFailed); flushes and compactions
/// keep the operands. A call must not write to the store or wait for its background work: the flush
/// that calls it might wait for itself.
///
/// Merge operators are those of RocksDB. [`merge`](Self::merge) is its `FullMerge`,
/// [`partial_merge`](Self::partial_merge) its `PartialMerge`.
///
/// ```
/// use std::sync::Arc;
/// use sievedb::{Db, KeyspaceOptions, MergeError, MergeOperator};
///
/// /// Multiplies numbers of one byte.
/// #[derive(Debug)]
/// struct Product;
///
/// impl MergeOperator for Product {
///     fn name(&self) -> &str {
///         "product"
///     }
///
///     fn merge(
///         &self,
///         _key: &[u8],
///         base: Option<&[u8]>,
///         operands: &[&[u8]],
///     ) -> Result<Vec<u8>, MergeError> {
///         let factors = base.iter().chain(operands);
///         let product = factors.map(|bytes| bytes.iter().product::<u8>()).product();
///         Ok(vec![product])
///     }
/// }
/// # let dir = tempfile::tempdir().unwrap();
/// let options = KeyspaceOptions::new().merge_operator(Arc::new(Product));
/// let db = Db::open(dir.path())?;
/// let products = db.keyspace_with("products", &options)?;
/// products.merge("a", [6])?;
/// products.merge("a", [7])?;
/// assert_eq!(products.get("a")?.as_deref(), Some(&[42][..]));
/// # Ok::<(), sievedb::Error>(())
/// ```
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Returns the name that is stored with a keyspace: 1 to 255 bytes. Names that begin with
    /// `sieve.` are reserved for the operators of this crate: options with another such name are
    /// [invalid](crate::Error::InvalidOption). If the results of an operator change, it needs
    /// another name.
    fn name(&self) -> &str;

    /// Returns the value of `key` after `operands` were applied to `base`, its value before; `None`
    /// if the key had no value. There is at least one operand; the oldest is first.
    ///
    /// A result of more than 256 MiB counts as a failure.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the operands cannot be applied. Reads of the key fail with it.
    fn merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError>;

    /// Returns one operand with the effect of `older` and then `newer`, on every value and on an
    /// absent key. `None`, the default, if there is no such operand: both are kept.
    ///
    /// Flushes and compactions call it for operands whose base is in a deeper level.
    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, older, newer);
        None
    }
}

/// The reason why merge operands cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeError {
    reason: Box<str>,
}

impl MergeError {
    /// Creates an error with this message: lower case, without a full stop.
    #[must_use]
    pub fn new(reason: impl Into<Box<str>>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl error::Error for MergeError {}
