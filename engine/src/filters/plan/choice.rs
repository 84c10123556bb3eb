//! Filters of new tables, and of tables whose filter is rebuilt.

use super::{
    division::ideal,
    shape::{RunShape, StoreShape, TableShape},
};
use crate::{filter_policy::FilterChoice, table::TablePlace};

/// Returns the filter of new tables at `place` of keyspace `keyspace`, an index in `store`, with at
/// most `new_keys` keys in total. `store` lacks the tables that they replace.
///
/// The filter is that of the best division among all tables, including the new ones. Older tables
/// with more bits drop them in memory, or are rebuilt. No bound is exceeded, so there may be no
/// filter at all.
pub(crate) fn choose(
    mut store: StoreShape,
    keyspace: usize,
    place: TablePlace,
    new_keys: u64,
) -> FilterChoice {
    let runs = &mut store.keyspaces[keyspace].runs;
    // One shape for all of them: they have equally many bits per key.
    let new = TableShape { keys: new_keys, ..TableShape::default() };
    let index = match runs.iter().position(|run| run.place == place) {
        Some(index) => {
            runs[index].tables.push(new);
            index
        }
        None => {
            runs.insert(0, RunShape { place, tables: vec![new] });
            0
        }
    };
    let before = store.keyspaces[..keyspace].iter().flat_map(|keyspace| &keyspace.runs);
    let before = before.chain(&store.keyspaces[keyspace].runs[..=index]);
    let tables: usize = before.map(|run| run.tables.len()).sum();
    ideal(&store).choices[tables - 1]
}

/// Returns the filter of table `id` at the best division among all tables, regardless of stored
/// filters. Returns `None` if there is no such table.
pub(crate) fn ideal_of(store: &StoreShape, id: u64) -> Option<FilterChoice> {
    let runs = store.keyspaces.iter().flat_map(|keyspace| &keyspace.runs);
    let index = runs.flat_map(|run| &run.tables).position(|table| table.id == id)?;
    Some(ideal(store).choices[index])
}
