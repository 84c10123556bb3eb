//! Which filter new tables get.

use super::MeasuredUse;
use crate::{
    filter_plan::{self, StoreShape},
    filter_policy::FilterChoice,
    read::tree::Tree,
    store::Store,
    table::store::TablePlace,
};

impl Store {
    /// The filter of new tables of `tree` at `place` with at most `new_keys` keys in all, beside all tables
    /// of the store but those that `is_gone` names.
    ///
    /// What was measured is left out: it says nothing of new tables, and flushes would wait for those who
    /// change filters.
    pub(crate) fn choose_filter(
        &self,
        tree: &Tree,
        is_gone: impl Fn(u64) -> bool,
        place: TablePlace,
        new_keys: u64,
    ) -> FilterChoice {
        let tables = self.filter_tables();
        let goal = self.filter_bytes_goal();
        let keyspace = tables.keyspaces.iter().position(|tables| tables.is_of(tree));
        let Some(keyspace) = keyspace else {
            // It was dropped meanwhile.
            let shape = StoreShape::of_tables(tree.filter_policy(), []).bounded(goal);
            return filter_plan::choose(shape, 0, place, new_keys);
        };
        let mut shape = tables.shape(goal, &MeasuredUse::default());
        for run in &mut shape.keyspaces[keyspace].runs {
            run.tables.retain(|table| !is_gone(table.id));
        }
        filter_plan::choose(shape, keyspace, place, new_keys)
    }
}
