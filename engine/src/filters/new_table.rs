//! Which filter new tables get.

use std::borrow::Cow;

use crate::{
    filter_policy::FilterChoice,
    filters::plan::{self, StoreShape},
    read::tree::Tree,
    table::TablePlace,
};

/// The filter of new tables of `tree` at `place` with at most `new_keys` keys in all, beside all
/// tables of the keyspace but those that `is_gone` names.
///
/// As large as the policy says, whatever memory has room for: what does not fit is left in the
/// file, and read when it does. A smaller one would have to be rebuilt for that, from all keys
/// of the table. What was measured is left out: it says nothing of new tables.
pub(crate) fn choose_filter(
    tree: &Tree,
    is_gone: impl Fn(u64) -> bool,
    place: TablePlace,
    new_keys: u64,
) -> FilterChoice {
    let version = tree.kept_view().version;
    let metas = version.metas();
    let beside = metas.iter().map(Cow::as_ref).filter(|table| !is_gone(table.id));
    let shape = StoreShape::of_tables(tree.filter_policy(), beside);
    plan::choose(shape, 0, place, new_keys)
}
