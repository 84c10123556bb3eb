//! Filters of new tables.

use std::borrow::Cow;

use crate::{
    filter_policy::FilterChoice,
    filters::plan::{self, StoreShape},
    read::tree::Tree,
    table::TablePlace,
};

/// Returns the filter of new tables of `tree` at `place` with at most `new_keys` keys in all,
/// beside all tables of the keyspace except those that `is_gone` names.
///
/// Its size follows the policy, not the memory: what does not fit stays in the file and is loaded
/// when it fits, while a larger filter would take a rebuild. Measured use does not matter: new
/// tables have none.
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
