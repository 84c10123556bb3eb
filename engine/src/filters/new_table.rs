//! Filters of new tables.

use std::borrow::Cow;

use crate::{
    filter_policy::FilterChoice,
    filters::plan::{self, StoreShape},
    read::tree::Tree,
    table::TablePlace,
};

/// Returns the filter of new tables of `tree` at `place` with at most `new_keys` keys in total. All
/// tables of the keyspace count, except those that `is_gone` names.
///
/// The size of the filter follows the policy, not the memory. Parts that do not fit stay in the
/// file and are loaded when they fit, while a larger filter would require a rebuild. Measured use
/// does not matter: new tables have none.
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
