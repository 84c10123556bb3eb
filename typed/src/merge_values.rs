//! A merge operator on typed values.

use std::{fmt, marker::PhantomData};

use sievedb::{Bytes, MergeError, MergeOperator};

use crate::codec::{Codec, Postcard};

/// A [merge operator](MergeOperator) that combines a value with later operands of the same type by
/// a function. The function must be associative, and must not change while its name is stored.
///
/// A read decodes the value and all operands of its key, and encodes the result. If the codec
/// refuses an operand or the result, reads of the key fail with [`sievedb::Error::MergeFailed`].
///
/// Stored operands keep their type. Before `V` changes, fold them by a
/// [migration](crate::Schema#migrations): operands that also decode as the new type would give
/// wrong values.
///
/// ```
/// use std::{collections::BTreeMap, sync::Arc};
/// use sievedb_typed::{MergeValues, Schema, TypedKeyspace, sievedb::Options};
///
/// type Stock = BTreeMap<String, i64>;
///
/// let add = MergeValues::<Stock>::new("add stock", |mut stock, change| {
///     for (article, count) in change {
///         *stock.entry(article).or_default() += count;
///     }
///     stock
/// });
/// let add = Arc::new(add);
///
/// # let dir = tempfile::tempdir().unwrap();
/// // Operators of the application are passed at each open.
/// let db = Options::new().merge_operator(add.clone()).open(dir.path())?;
/// let options = sievedb_typed::sievedb::KeyspaceOptions::new().merge_operator(add);
/// let schema = Schema::new("stock", 1);
/// let stocks = TypedKeyspace::<u32, Stock>::open_with(&db, "stocks", &options, schema)?;
/// stocks.merge(7, Stock::from([("bolt".into(), 10)]))?;
/// stocks.merge(7, Stock::from([("bolt".into(), -3), ("nut".into(), 5)]))?;
/// assert_eq!(stocks.get(7)?, Some(Stock::from([("bolt".into(), 7), ("nut".into(), 5)])));
/// # Ok::<(), sievedb_typed::Error>(())
/// ```
pub struct MergeValues<V, C = Postcard> {
    name: String,
    combine: Box<dyn Fn(V, V) -> V + Send + Sync>,
    codec: PhantomData<fn() -> C>,
}

impl<V, C: Codec<V>> MergeValues<V, C> {
    /// Returns the operator `name`, a name of 1 to 255 bytes that does not begin with `sieve.`.
    /// `combine` takes the value, or an older operand, and a newer operand. The first operand of an
    /// absent key becomes its value.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        combine: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), combine: Box::new(combine), codec: PhantomData }
    }

    fn combine_all<'b>(
        &self,
        mut values: impl Iterator<Item = &'b [u8]>,
    ) -> Result<Vec<u8>, MergeError> {
        let decode = |bytes: &[u8]| {
            C::decode(Bytes::copy_from_slice(bytes))
                .map_err(|error| MergeError::new(error.to_string()))
        };
        let first = values.next().ok_or_else(|| MergeError::new("no operand"))?;
        let mut value = decode(first)?;
        for operand in values {
            value = (self.combine)(value, decode(operand)?);
        }
        let mut bytes = Vec::new();
        C::encode(&value, &mut bytes).map_err(|error| MergeError::new(error.to_string()))?;
        Ok(bytes)
    }
}

impl<V, C: Codec<V>> MergeOperator for MergeValues<V, C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        self.combine_all(base.into_iter().chain(operands.iter().copied()))
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.combine_all([older, newer].into_iter()).ok()
    }
}

impl<V, C> fmt::Debug for MergeValues<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeValues").field("name", &self.name).finish_non_exhaustive()
    }
}
